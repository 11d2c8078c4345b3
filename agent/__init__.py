"""One node: sensors, intake of the ranks' records, journal, publisher."""
