/* What the agent reads at every sample, in machine code: the same as the sensors' own Python, which serves where this was not built,
   and wherever something is not as it nearly always is.

   The agent sleeps for a second, and then most of what it costs is code and data that it touches: an object for each column of
   each file and for each value of the sample, and the interpreter around them. So values become here what they are sent as, the
   msgpack that msgspec makes of a sample's objects.

   Stable ABI of Python 3.11, the first with buffers in it. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Digits that surely fit 64 bits. */
enum { MOST_DIGITS = 18 };

static int is_digit(char c) { return c >= '0' && c <= '9'; }

static int is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static const char *skip_spaces(const char *at, const char *end) {
    while (at < end && is_space(*at))
        at++;
    return at;
}

static const char *skip_word(const char *at, const char *end) {
    while (at < end && !is_space(*at))
        at++;
    return at;
}

/* Up to the first character that is no digit; -1 for none, or for too many. */
static int64_t number_at(const char **at, const char *end) {
    const char *begin = *at;
    int64_t number = 0;
    while (*at < end && is_digit(**at))
        number = *at - begin < MOST_DIGITS ? 10 * number + (*(*at)++ - '0') : ((*at)++, number);
    return *at == begin || *at - begin > MOST_DIGITS ? -1 : number;
}

static const char *end_of_line(const char *at, const char *end) {
    const char *found = memchr(at, '\n', (size_t)(end - at));
    return found == NULL ? end : found;
}

enum { READ_BYTES = 1 << 16, PAGE_BYTES = 4096 };

/* The whole file; -1 where it cannot be read, or does not fit. */
static Py_ssize_t read_file(long long descriptor, char *text, size_t room) {
    ssize_t size = descriptor < 0 || descriptor > INT_MAX ? -1 : pread((int)descriptor, text, room, 0);
    /* The kernel gives some files page by page. */
    for (ssize_t more = size; size >= PAGE_BYTES && more > 0 && (size_t)size < room; size += more)
        if ((more = pread((int)descriptor, text + size, room - (size_t)size, size)) < 0)
            return -1;
    return size == (ssize_t)room ? -1 : size;
}

/* ---- msgpack ------------------------------------------------------------------------------------------------------- */

typedef struct {
    uint8_t *bytes;
    size_t size, room;
    int failed;
} Out;

/* Has room for so much: what grows piece by piece goes over memory that was not touched since the last second. */
static void make_space(Out *out, size_t room) {
    uint8_t *moved = room > out->room && !out->failed ? PyMem_Realloc(out->bytes, room) : NULL;
    if (moved != NULL)
        out->bytes = moved, out->room = room;
}

static void put(Out *out, const void *bytes, size_t size) {
    if (size > out->room - out->size && !out->failed) {
        size_t room = 2 * (out->room + size) + 2048;
        uint8_t *moved = PyMem_Realloc(out->bytes, room);
        if (moved == NULL)
            out->failed = 1;
        else
            out->bytes = moved, out->room = room;
    }
    if (!out->failed) {
        memcpy(out->bytes + out->size, bytes, size);
        out->size += size;
    }
}

/* A byte that says what follows, and a number of so many bytes, the highest first. */
static void put_number(Out *out, int kind, uint64_t number, int width) {
    uint8_t bytes[9] = {(uint8_t)kind};
    for (int i = width; i > 0; i--, number >>= 8)
        bytes[i] = (uint8_t)number;
    put(out, bytes, (size_t)width + 1);
}

static void put_nil(Out *out) { put(out, "\xc0", 1); }

static void put_true(Out *out) { put(out, "\xc3", 1); }

static void put_float(Out *out, double number) {
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    put_number(out, 0xcb, bits, 8);
}

static void put_unsigned(Out *out, uint64_t number) {
    if (number < 128)
        put_number(out, (int)number, 0, 0);
    else if (number <= UINT8_MAX)
        put_number(out, 0xcc, number, 1);
    else if (number <= UINT16_MAX)
        put_number(out, 0xcd, number, 2);
    else if (number <= UINT32_MAX)
        put_number(out, 0xce, number, 4);
    else
        put_number(out, 0xcf, number, 8);
}

static void put_integer(Out *out, int64_t number) {
    if (number >= 0)
        put_unsigned(out, (uint64_t)number);
    else if (number >= -32)
        put_number(out, (int)number & 0xff, 0, 0);
    else if (number >= INT8_MIN)
        put_number(out, 0xd0, (uint64_t)number, 1);
    else if (number >= INT16_MIN)
        put_number(out, 0xd1, (uint64_t)number, 2);
    else if (number >= INT32_MIN)
        put_number(out, 0xd2, (uint64_t)number, 4);
    else
        put_number(out, 0xd3, (uint64_t)number, 8);
}

/* `few` for less than 16. */
static void put_count(Out *out, int few, int many, uint64_t count) {
    if (count < 16)
        put_number(out, few | (int)count, 0, 0);
    else if (count <= UINT16_MAX)
        put_number(out, many, count, 2);
    else
        put_number(out, many + 1, count, 4);
}

static void put_list(Out *out, uint64_t count) { put_count(out, 0x90, 0xdc, count); }

static void put_map(Out *out, uint64_t count) { put_count(out, 0x80, 0xde, count); }

static void put_text(Out *out, const char *text, size_t size) {
    if (size < 32)
        put_number(out, 0xa0 | (int)size, 0, 0);
    else if (size <= UINT8_MAX)
        put_number(out, 0xd9, size, 1);
    else
        put_number(out, size <= UINT16_MAX ? 0xda : 0xdb, size, size <= UINT16_MAX ? 2 : 4);
    put(out, text, size);
}

static void put_key(Out *out, const char *name) { put_text(out, name, strlen(name)); }

/* To the nearest of so many decimals in exact arithmetic, as Python rounds; NaN with an error set. */
static double rounded(double number, int decimals) {
    char *text = PyOS_double_to_string(number, 'f', decimals, 0, NULL);
    if (text == NULL)
        return Py_NAN;
    number = PyOS_string_to_double(text, NULL, NULL);
    PyMem_Free(text);
    return number;
}

/* What was put, given up here; NULL with an error set. */
static PyObject *taken(Out *out) {
    PyObject *bytes = NULL;
    if (out->failed)
        PyErr_NoMemory();
    else if (!PyErr_Occurred())
        bytes = PyBytes_FromStringAndSize((const char *)out->bytes, (Py_ssize_t)out->size);
    PyMem_Free(out->bytes);
    return bytes;
}

/* (what is known after it, what was put); None where `known` is not, for what is left to Python. */
static PyObject *told(int known, const void *state, size_t size, Out *out) {
    if (!known && !PyErr_Occurred()) {
        PyMem_Free(out->bytes);
        Py_RETURN_NONE;
    }
    PyObject *packed = taken(out);
    return packed == NULL ? NULL : Py_BuildValue("(y#N)", (const char *)state, (Py_ssize_t)size, packed);
}

/* ---- /proc/stat ---------------------------------------------------------------------------------------------------- */

enum { MOST_CORES = 8192, ABSENT = -1 };
static const int64_t MOST_TICKS = 20000000000000;

typedef struct {
    int64_t idle, total;
} Ticks;

/* Columns of a line: user, nice, system, idle, I/O wait, two of interrupts, stolen. Guest time is already in the first two. */
static int ticks_of(const char *at, const char *end, Ticks *ticks) {
    int64_t columns[8] = {0};
    int count = 0;
    for (; count < 8; count++) {
        const char *begin = at;
        while (at < end && *at == ' ')
            at++;
        if (at == end || !is_digit(*at) || at == begin)
            break;
        if ((columns[count] = number_at(&at, end)) < 0 || columns[count] > MOST_TICKS)
            return -1;
    }
    if (count < 4)
        return 0;
    ticks->idle = columns[3] + columns[4];
    ticks->total = ticks->idle + columns[0] + columns[1] + columns[2] + columns[5] + columns[6] + columns[7];
    return 1;
}

/* Fills in a place for all cores and one for each; gives how many places, 0 for none, -1 for a text that is left to Python. */
static Py_ssize_t parse_cores(const char *at, const char *end, Ticks *found) {
    Py_ssize_t places = 0;
    while (at < end) {
        const char *line_end = end_of_line(at, end);
        if (line_end - at > 3 && memcmp(at, "cpu", 3) == 0) {
            Ticks ticks;
            int64_t place = 0;
            int is_line;
            at += 3;
            if (is_digit(*at) && ((place = number_at(&at, line_end) + 1) <= 0 || place >= MOST_CORES))
                return -1;
            if ((is_line = ticks_of(at, line_end, &ticks)) < 0)
                return -1;
            if (is_line) {
                for (; places <= place; places++)
                    found[places] = (Ticks){ABSENT, 0};
                found[place] = ticks;
            }
        }
        at = line_end + 1;
    }
    return places;
}

/* Two decimals, half a hundredth rounded up. The counters of idle time and I/O wait can step back by a tick. */
static void put_busy(Out *out, const Ticks *before, const Ticks *after) {
    int64_t idle = after->idle - before->idle, total = after->total - before->total;
    if (before->idle == ABSENT || after->idle == ABSENT || total <= 0)
        put_nil(out);
    else if (idle < 0 || idle > total)
        put_float(out, idle < 0 ? 100.0 : 0.0);
    else
        put_float(out, (double)((20000 * (total - idle) + total) / (2 * total)) / 100.0);
}

static Ticks ticks_at(const char *bytes, Py_ssize_t size, Py_ssize_t place) {
    Ticks ticks = {ABSENT, 0};
    if (place < size / (Py_ssize_t)sizeof ticks)
        memcpy(&ticks, bytes + place * (Py_ssize_t)sizeof ticks, sizeof ticks);
    return ticks;
}

/* The lines before that of interrupts, which is one of thousands of numbers on a large machine; NULL where not all of them are there. */
static const char *end_of_cores(const char *text, Py_ssize_t read, size_t room) {
    const char *end = text + (read > 0 ? read : 0);
    for (const char *at = text; at < end; at = end_of_line(at, end) + 1)
        if (end - at > 4 && memcmp(at, "intr", 4) == 0)
            return at;
    return read <= 0 || read == (Py_ssize_t)room || read >= PAGE_BYTES ? NULL : end;
}

static PyObject *core_usage(PyObject *module, PyObject *args) {
    static Ticks found[MOST_CORES]; /* for one thread at a time: the interpreter's lock is held */
    const char *before;
    char text[READ_BYTES];
    Py_ssize_t size, places = 0;
    int descriptor;
    Out all = {0}, cores = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "iy#", &descriptor, &before, &size))
        return NULL;
    const char *end = end_of_cores(text, descriptor < 0 ? -1 : pread(descriptor, text, sizeof text, 0), sizeof text);
    if (end == NULL || (places = parse_cores(text, end, found)) <= 0)
        Py_RETURN_NONE;
    for (Py_ssize_t place = 0; place < places; place++) {
        Ticks ticks = ticks_at(before, size, place);
        put_busy(place == 0 ? &all : &cores, &ticks, &found[place]);
        if (place == 0)
            put_list(&cores, (uint64_t)places - 1);
    }
    PyObject *packed_all = taken(&all), *packed_cores = taken(&cores);
    if (packed_all != NULL && packed_cores != NULL)
        return Py_BuildValue("(y#NN)", (const char *)found, places * (Py_ssize_t)sizeof *found, packed_all, packed_cores);
    Py_XDECREF(packed_all);
    Py_XDECREF(packed_cores);
    return NULL;
}

/* ---- /proc/net/dev ------------------------------------------------------------------------------------------------- */

/* Bytes received are in the first column after the interface's name, and bytes sent in the ninth. 1 where a line has them. */
static int traffic_of(const char *at, const char *end, int64_t *received, int64_t *sent) {
    int column = 0;
    for (at = skip_spaces(at, end); at < end; at = skip_spaces(skip_word(at, end), end), column++) {
        const char *number = at;
        if (column != 0 && column != 8)
            continue;
        int64_t *into = column == 0 ? received : sent;
        if ((*into = number_at(&number, end)) < 0 && number != at)
            return -1;
        if (*into < 0 || (number < end && !is_space(*number)))
            return 0;
        if (column == 8)
            return 1;
    }
    return 0;
}

typedef struct {
    const char *name;
    size_t size;
    int64_t count[3], before[3];
    int has_before, unused;
} Device;

enum { TRAFFIC = 2, DISK = 3 };

static int by_name(const void *one, const void *other) {
    const Device *a = one, *b = other;
    int order = memcmp(a->name, b->name, a->size < b->size ? a->size : b->size);
    return order != 0 ? order : (a->size > b->size) - (a->size < b->size);
}

/* Those that training talks over first, then those that carried most. */
static int by_traffic(const void *one, const void *other) {
    const Device *a = one, *b = other;
    int64_t carried_a = a->count[0] + a->count[1], carried_b = b->count[0] + b->count[1];
    if (a->unused != b->unused)
        return a->unused - b->unused;
    return carried_a != carried_b ? (carried_a < carried_b ? 1 : -1) : by_name(one, other);
}

static int by_place(const void *one, const void *other) {
    const Device *a = one, *b = other;
    return (a->name > b->name) - (a->name < b->name);
}

/* Whether it is a line of `names`, which begins and ends with a line's end. */
static int is_among(const char *names, size_t size, const Device *device) {
    for (const char *at = names, *end = names + size; (at = memchr(at, '\n', (size_t)(end - at))) != NULL; at++)
        if ((size_t)(end - at) > device->size + 1 && at[device->size + 1] == '\n' && memcmp(at + 1, device->name, device->size) == 0)
            return 1;
    return 0;
}

/* Of a line of /proc/net/dev: 1, 0 for one of another form, -1 for one that is left to Python. */
static int interface_in(const char *at, const char *end, Device *device) {
    const char *colon = end;
    while (colon > at && colon[-1] != ':')
        colon--;
    if (colon - at < 2)
        return 0;
    device->name = skip_spaces(at, colon - 1);
    const char *name_end = colon - 1;
    while (name_end > device->name && is_space(name_end[-1]))
        name_end--;
    device->size = (size_t)(name_end - device->name);
    return traffic_of(colon, end, &device->count[0], &device->count[1]);
}

/* The same of /proc/diskstats: sectors of 512 bytes that were read and written, and milliseconds in which it was busy. */
static int disk_in(const char *at, const char *end, Device *device) {
    at = skip_spaces(at, end);
    for (int column = 0; column < 13; column++, at = skip_spaces(skip_word(at, end), end)) {
        if (at == end)
            return 0;
        if (column == 2) {
            device->name = at;
            device->size = (size_t)(skip_word(at, end) - at);
        } else if (column == 5 || column == 9 || column == 12) {
            const char *number = at;
            int64_t found = number_at(&number, end);
            if (found < 0 && number != at)
                return -1;
            if (found < 0 || (number < end && !is_space(*number)))
                return 0;
            if (column != 12 && found > INT64_MAX / 512)
                return -1;
            device->count[column == 5 ? 0 : column == 9 ? 1 : 2] = column == 12 ? found : 512 * found;
        }
    }
    return 1;
}

/* The devices of a text, in the order of their names; those alone of `wanted`, where that is given. NULL for a text that is left to
   Python: one with names that are not ASCII, or not each other's only one. Raises no error. */
static Device *devices_in(const char *text, size_t size, int (*parse)(const char *, const char *, Device *), const char *wanted,
                          size_t wanted_size, Py_ssize_t *count) {
    Py_ssize_t lines = 1;
    for (const char *at = text, *end = text + size; at < end; at++) {
        lines += *at == '\n';
        if ((unsigned char)*at >= 128 || *at == '\r')
            return NULL;
    }
    Device *found = PyMem_Calloc((size_t)lines, sizeof *found);
    *count = 0;
    for (const char *at = text, *end = text + size; found != NULL && at < end; at = end_of_line(at, end) + 1) {
        Device *device = &found[*count];
        int known = parse(at, end_of_line(at, end), device);
        if (known > 0 && (wanted == NULL || is_among(wanted, wanted_size, device)))
            ++*count;
        else if (known < 0) {
            PyMem_Free(found);
            return NULL;
        }
    }
    if (found != NULL)
        qsort(found, (size_t)*count, sizeof *found, by_name);
    for (Py_ssize_t i = 1; found != NULL && i < *count; i++) {
        if (by_name(&found[i - 1], &found[i]) == 0) {
            PyMem_Free(found);
            return NULL;
        }
    }
    return found;
}

/* The devices of a text with what they counted in an earlier one; NULL for texts that are left to Python. */
static Device *devices_since(const char *text, size_t size, const char *earlier, size_t earlier_size,
                             int (*parse)(const char *, const char *, Device *), const char *wanted, size_t wanted_size,
                             Py_ssize_t *count) {
    Py_ssize_t known, at = 0;
    Device *before = devices_in(earlier, earlier_size, parse, wanted, wanted_size, &known);
    Device *found = before == NULL ? NULL : devices_in(text, size, parse, wanted, wanted_size, count);
    for (Py_ssize_t i = 0; found != NULL && i < *count; i++) {
        while (at < known && by_name(&before[at], &found[i]) < 0)
            at++;
        if ((found[i].has_before = at < known && by_name(&before[at], &found[i]) == 0))
            memcpy(found[i].before, before[at].count, sizeof found[i].before);
    }
    PyMem_Free(before);
    return found;
}

/* Whether there is a rate: not at the first reading, nor after the counter was reset. */
static int has_rate(const Device *device, int which, double interval_s) {
    return device->has_before && interval_s > 0 && device->count[which] >= device->before[which];
}

static void put_rate(Out *out, const Device *device, int which, double interval_s) {
    if (has_rate(device, which, interval_s))
        put_float(out, (double)(device->count[which] - device->before[which]) / interval_s);
    else
        put_nil(out);
}

static PyObject *network_rates(PyObject *module, PyObject *args) {
    const char *before, *used;
    char text[READ_BYTES];
    Py_ssize_t before_size, used_size, most, count, wanted = 0;
    int descriptor;
    double interval_s;
    Out out = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "iy#dy#n", &descriptor, &before, &before_size, &interval_s, &used, &used_size, &most))
        return NULL;
    Py_ssize_t size = read_file(descriptor, text, sizeof text);
    if (size < 0)
        Py_RETURN_NONE;
    Device *found = devices_since(text, (size_t)size, before, (size_t)before_size, interface_in, NULL, 0, &count);
    for (Py_ssize_t i = 0; found != NULL && i < count; i++) {
        found[i].unused = !is_among(used, (size_t)used_size, &found[i]);
        /* Hosts with containers have hundreds; those that never carried a byte tell nothing. */
        if (!found[i].unused || found[i].count[0] > 0 || found[i].count[1] > 0)
            found[wanted++] = found[i];
    }
    if (found != NULL) {
        qsort(found, (size_t)wanted, sizeof *found, by_traffic);
        wanted = wanted < most ? wanted : most;
        put_list(&out, (uint64_t)wanted);
    }
    for (Py_ssize_t i = 0; found != NULL && i < wanted; i++) {
        put_map(&out, found[i].unused ? 3 : 4);
        put_key(&out, "name");
        put_text(&out, found[i].name, found[i].size);
        put_key(&out, "received_bytes_per_s");
        put_rate(&out, &found[i], 0, interval_s);
        put_key(&out, "sent_bytes_per_s");
        put_rate(&out, &found[i], 1, interval_s);
        if (!found[i].unused) {
            put_key(&out, "used_by_training");
            put_true(&out);
        }
    }
    PyMem_Free(found);
    return told(found != NULL && wanted > 0, text, (size_t)size, &out);
}

static PyObject *disk_rates(PyObject *module, PyObject *args) {
    const char *before, *wanted;
    char text[READ_BYTES];
    Py_ssize_t before_size, wanted_size, count;
    int descriptor;
    double interval_s;
    Out out = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "iy#dy#", &descriptor, &before, &before_size, &interval_s, &wanted, &wanted_size))
        return NULL;
    Py_ssize_t size = read_file(descriptor, text, sizeof text);
    if (size < 0)
        Py_RETURN_NONE;
    Device *found = devices_since(text, (size_t)size, before, (size_t)before_size, disk_in, wanted, (size_t)wanted_size, &count);
    if (found != NULL) {
        qsort(found, (size_t)count, sizeof *found, by_place);
        put_list(&out, (uint64_t)count);
    }
    for (Py_ssize_t i = 0; found != NULL && i < count; i++) {
        int has_busy = has_rate(&found[i], 2, interval_s);
        put_map(&out, has_busy ? 4 : 3);
        put_key(&out, "name");
        put_text(&out, found[i].name, found[i].size);
        put_key(&out, "read_bytes_per_s");
        put_rate(&out, &found[i], 0, interval_s);
        put_key(&out, "written_bytes_per_s");
        put_rate(&out, &found[i], 1, interval_s);
        if (has_busy) {
            double percent = (double)(found[i].count[2] - found[i].before[2]) / interval_s / 10;
            put_key(&out, "busy_percent");
            put_float(&out, rounded(percent < 100.0 ? percent : 100.0, 2));
        }
    }
    PyMem_Free(found);
    return told(found != NULL && count > 0, text, (size_t)size, &out);
}

/* ---- /proc/meminfo ------------------------------------------------------------------------------------------------- */

/* The kilobytes of a line that begins so, in bytes; -1 where there is no such line. */
static int64_t bytes_of(const char *text, const char *end, const char *name) {
    size_t size = strlen(name);
    for (const char *at = text; at < end; at = end_of_line(at, end) + 1) {
        if ((size_t)(end - at) > size && memcmp(at, name, size) == 0) {
            at = skip_spaces(at + size, end);
            int64_t found = number_at(&at, end);
            return found < 0 || found > INT64_MAX / 1024 || (at < end && !is_space(*at)) ? -1 : 1024 * found;
        }
    }
    return -1;
}

static PyObject *memory_bytes(PyObject *module, PyObject *given) {
    static const char *const names[] = {"MemTotal:", "MemAvailable:", "SwapTotal:", "SwapFree:"};
    char text[READ_BYTES];
    int64_t found[4];
    long descriptor = PyLong_AsLong(given);
    (void)module;
    if (PyErr_Occurred())
        return NULL;
    Py_ssize_t size = read_file(descriptor, text, sizeof text);
    for (int i = 0; i < 4; i++)
        if (size < 0 || (found[i] = bytes_of(text, text + size, names[i])) < 0)
            Py_RETURN_NONE;
    return Py_BuildValue("(LLLL)", (long long)(found[0] - found[1]), (long long)found[0], (long long)(found[2] - found[3]),
                         (long long)found[2]);
}

/* ---- Many files in one call ---------------------------------------------------------------------------------------- */

/* Calls `parse` with what each of the files holds; None for one that cannot be read at once, or that `parse` does not know. */
static PyObject *read_each(PyObject *descriptors, PyObject *(*parse)(const char *, const char *)) {
    char text[4096];
    if (!PyList_Check(descriptors)) {
        PyErr_SetString(PyExc_TypeError, "not a list of file descriptors");
        return NULL;
    }
    Py_ssize_t count = PyList_Size(descriptors);
    PyObject *found = PyList_New(count);
    for (Py_ssize_t i = 0; found != NULL && i < count; i++) {
        long descriptor = PyLong_AsLong(PyList_GetItem(descriptors, i));
        PyObject *item = NULL;
        if (descriptor >= 0 && descriptor <= INT_MAX) {
            ssize_t size = pread((int)descriptor, text, sizeof text, 0);
            /* What fills it may go on. */
            item = size < 0 || size == sizeof text ? NULL : parse(text, text + size);
        }
        if (PyErr_Occurred() || PyList_SetItem(found, i, item == NULL ? Py_NewRef(Py_None) : item) < 0)
            Py_CLEAR(found);
    }
    return found;
}

/* Of digits alone, with white space around them. */
static PyObject *parse_number(const char *at, const char *end) {
    at = skip_spaces(at, end);
    int64_t number = number_at(&at, end);
    return number < 0 || skip_spaces(at, end) != end ? NULL : PyLong_FromLongLong(number);
}

static PyObject *whole_numbers(PyObject *module, PyObject *descriptors) {
    (void)module;
    return read_each(descriptors, parse_number);
}

/* Of /proc/PID/stat: clock ticks in user and kernel mode, threads, pages of memory; 0 where they are not there. The name, in brackets,
   may hold anything. */
static int counts_of_process(const char *at, const char *end, int64_t counts[3]) {
    enum { USER = 11, KERNEL = 12, THREADS = 17, PAGES = 21, COLUMNS = 22 };
    int64_t wanted[COLUMNS] = {0};
    const char *bracket = end;
    while (bracket > at && bracket[-1] != ')')
        bracket--;
    if (bracket == at || bracket == end || *bracket != ' ')
        return 0;
    at = skip_spaces(bracket, end);
    for (int column = 0; column < COLUMNS; column++, at = skip_spaces(skip_word(at, end), end)) {
        const char *number = at;
        if (at == end)
            return 0;
        if (column != USER && column != KERNEL && column != THREADS && column != PAGES)
            continue;
        wanted[column] = number_at(&number, end);
        if (wanted[column] < 0 || number == end || !is_space(*number))
            return 0;
    }
    counts[0] = wanted[USER] + wanted[KERNEL];
    counts[1] = wanted[THREADS];
    counts[2] = wanted[PAGES];
    return 1;
}

/* Of /proc/PID/schedstat: nanoseconds waited for a core; -1 where it does not say, as where it has no time on one. */
static long long run_queue_wait(long long descriptor) {
    char text[128];
    Py_ssize_t size = read_file(descriptor, text, sizeof text);
    if (size <= 0)
        return -1;
    const char *at = text, *end = text + size;
    int64_t ran = number_at(&at, end);
    at = skip_spaces(at, end);
    return ran > 0 ? number_at(&at, end) : -1;
}

/* What a file of one number holds; -1 for anything else. */
static int64_t number_in_file(long long descriptor) {
    char text[64];
    Py_ssize_t size = read_file(descriptor, text, sizeof text);
    if (size <= 0)
        return -1;
    const char *at = skip_spaces(text, text + size);
    int64_t number = number_at(&at, text + size);
    return skip_spaces(at, text + size) == text + size ? number : -1;
}

/* Of files of a number above zero each, in thousandths: what stands before each, in msgpack, and the number. */
static PyObject *thousandths(PyObject *module, PyObject *args) {
    PyObject *descriptors, *heads;
    Out out = {0};
    int64_t number = 1;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!O!", &PyList_Type, &descriptors, &PyList_Type, &heads))
        return NULL;
    Py_ssize_t count = PyList_Size(descriptors);
    if (PyList_Size(heads) != count) {
        PyErr_SetString(PyExc_ValueError, "not as many files as there should be");
        return NULL;
    }
    put_list(&out, (uint64_t)count);
    for (Py_ssize_t i = 0; i < count && number > 0 && !PyErr_Occurred(); i++) {
        char *head;
        Py_ssize_t size;
        if (PyBytes_AsStringAndSize(PyList_GetItem(heads, i), &head, &size) < 0)
            break;
        put(&out, head, (size_t)size);
        number = number_in_file(PyLong_AsLong(PyList_GetItem(descriptors, i)));
        put_float(&out, (double)number / 1000);
    }
    if (number <= 0 && !PyErr_Occurred()) {
        PyMem_Free(out.bytes);
        Py_RETURN_NONE;
    }
    return taken(&out);
}

/* As the sensors keep it between two samples: bytes of so many 64-bit integers for each. A copy, NULL with an error set, or where it
   is not that. */
static int64_t *kept_numbers(const char *bytes, Py_ssize_t size, Py_ssize_t count, Py_ssize_t width) {
    if (size != count * width * (Py_ssize_t)sizeof(int64_t)) {
        PyErr_SetString(PyExc_ValueError, "not as many numbers as there should be");
        return NULL;
    }
    int64_t *numbers = PyMem_Malloc((size_t)size + 1);
    if (numbers == NULL)
        PyErr_NoMemory();
    else
        memcpy(numbers, bytes, (size_t)size);
    return numbers;
}

/* Of each port its descriptors, and counts of words at the last reading, and what comes before and after its rates in msgpack. */
static PyObject *port_rates(PyObject *module, PyObject *args) {
    enum { RECEIVED, SENT, RECEIVED_BEFORE, SENT_BEFORE, WIDTH };
    const char *given, *head, *tail;
    PyObject *frames;
    Py_ssize_t size, head_size, tail_size;
    double interval_s;
    Out out = {0};
    int known = 1;
    (void)module;
    if (!PyArg_ParseTuple(args, "y#O!d", &given, &size, &PyList_Type, &frames, &interval_s))
        return NULL;
    Py_ssize_t count = PyList_Size(frames);
    int64_t *ports = kept_numbers(given, size, count, WIDTH);
    if (ports == NULL)
        return NULL;
    put_list(&out, (uint64_t)count);
    for (Py_ssize_t i = 0; i < count && known; i++) {
        int64_t *port = ports + i * WIDTH;
        if (!PyArg_ParseTuple(PyList_GetItem(frames, i), "y#y#", &head, &head_size, &tail, &tail_size))
            break;
        put(&out, head, (size_t)head_size);
        for (int way = RECEIVED; way <= SENT && known; way++) {
            int64_t now = number_in_file(port[way]), before = port[way + 2];
            known = now >= 0 && now != UINT32_MAX && before >= 0 && now >= before && interval_s > 0;
            if (way == SENT)
                put_key(&out, "sent_bytes_per_s");
            put_float(&out, (double)(now - before) / interval_s * 4);
            port[way + 2] = now;
        }
        put(&out, tail, (size_t)tail_size);
    }
    PyObject *answer = told(known, ports, (size_t)size, &out);
    PyMem_Free(ports);
    return answer;
}

/* Of each zone its descriptor, microjoules and time at the last reading, the number at which it starts over (-1: unknown) and whether it
   always draws something; and what comes before its watts, and after its joules, in msgpack. */
static PyObject *rail_readings(PyObject *module, PyObject *args) {
    enum { FILE_, BEFORE, BEFORE_NS, RANGE, WHOLE, WIDTH };
    const char *given, *head, *tail;
    PyObject *frames;
    Py_ssize_t size, head_size, tail_size;
    long long now_ns;
    double most_watts;
    Out out = {0};
    int known = 1;
    (void)module;
    if (!PyArg_ParseTuple(args, "y#O!Ld", &given, &size, &PyList_Type, &frames, &now_ns, &most_watts))
        return NULL;
    Py_ssize_t count = PyList_Size(frames);
    int64_t *zones = kept_numbers(given, size, count, WIDTH);
    if (zones == NULL)
        return NULL;
    put_list(&out, (uint64_t)count);
    for (Py_ssize_t i = 0; i < count && known; i++) {
        int64_t *zone = zones + i * WIDTH, now = number_in_file(zone[FILE_]), used = now - zone[BEFORE];
        long long elapsed_ns = now_ns - zone[BEFORE_NS];
        double most = (double)elapsed_ns / 1e9 * most_watts * 1e6, joules = (double)used / 1e6;
        if (!PyArg_ParseTuple(PyList_GetItem(frames, i), "y#y#", &head, &head_size, &tail, &tail_size))
            break;
        known = now >= 0 && zone[BEFORE] >= 0 && elapsed_ns > 0 && used >= (zone[WHOLE] ? 1 : 0) && (double)used <= most &&
                (zone[RANGE] < 0 || most < (double)zone[RANGE]);
        if (!known)
            break;
        put(&out, head, (size_t)head_size);
        put_float(&out, rounded(joules * 1e9 / (double)elapsed_ns, 3));
        put_key(&out, "source");
        put_key(&out, "rapl");
        put_key(&out, "energy_j");
        put_float(&out, joules);
        put(&out, tail, (size_t)tail_size);
        zone[BEFORE] = now;
        zone[BEFORE_NS] = now_ns;
    }
    PyObject *answer = told(known, zones, (size_t)size, &out);
    PyMem_Free(zones);
    return answer;
}

/* Of each process its pid, its rank (-1: unknown), the descriptors of /proc/PID/stat and schedstat, and ticks, time and wait at the last
   reading. */
static PyObject *process_readings(PyObject *module, PyObject *args) {
    enum { PID, RANK, STAT, QUEUE, TICKS, AT_NS, WAITED, WIDTH };
    const char *given;
    char text[PAGE_BYTES];
    Py_ssize_t size;
    long long now_ns, ticks_per_s, page_bytes;
    int64_t counts[3];
    Out out = {0};
    int known = 1;
    (void)module;
    if (!PyArg_ParseTuple(args, "y#LLL", &given, &size, &now_ns, &ticks_per_s, &page_bytes))
        return NULL;
    Py_ssize_t count = size / (WIDTH * (Py_ssize_t)sizeof(int64_t));
    int64_t *processes = kept_numbers(given, size, count, WIDTH);
    if (processes == NULL)
        return NULL;
    put_list(&out, (uint64_t)count);
    for (Py_ssize_t i = 0; i < count && known; i++) {
        int64_t *process = processes + i * WIDTH;
        Py_ssize_t read = read_file(process[STAT], text, sizeof text);
        long long elapsed_ns = now_ns - process[AT_NS];
        known = read > 0 && elapsed_ns > 0 && process[TICKS] >= 0 && counts_of_process(text, text + read, counts) &&
                counts[2] <= INT64_MAX / page_bytes;
        if (!known)
            break;
        long long waited = run_queue_wait(process[QUEUE]), wait_ns = waited - process[WAITED];
        int has_wait = waited >= 0 && process[WAITED] >= 0;
        double percent = 100e9 * (double)(counts[0] - process[TICKS]) / (double)ticks_per_s / (double)elapsed_ns;
        put_map(&out, has_wait ? 6 : 5);
        put_key(&out, "pid");
        put_integer(&out, process[PID]);
        put_key(&out, "rank");
        if (process[RANK] < 0)
            put_nil(&out);
        else
            put_integer(&out, process[RANK]);
        put_key(&out, "cpu_percent");
        put_float(&out, rounded(percent > 0.0 ? percent : 0.0, 2));
        put_key(&out, "memory_bytes");
        put_integer(&out, counts[2] * page_bytes);
        put_key(&out, "threads");
        put_integer(&out, counts[1]);
        if (has_wait) {
            wait_ns = wait_ns < 0 ? 0 : wait_ns > elapsed_ns ? elapsed_ns : wait_ns;
            put_key(&out, "run_queue_wait_percent");
            put_float(&out, (double)((1000 * wait_ns + elapsed_ns / 2) / elapsed_ns) / 10);
        }
        process[TICKS] = counts[0];
        process[AT_NS] = now_ns;
        process[WAITED] = waited;
    }
    PyObject *answer = told(known, processes, (size_t)size, &out);
    PyMem_Free(processes);
    return answer;
}

/* ---- Steps of several workers -------------------------------------------------------------------------------------- */

/* Of (numbers, steps, later) of each worker: all their columns, with the starts, which are the last one, that much later. */
static PyObject *join_steps(PyObject *module, PyObject *rows) {
    (void)module;
    if (!PyList_Check(rows)) {
        PyErr_SetString(PyExc_TypeError, "not a list of rows");
        return NULL;
    }
    Py_ssize_t count = PyList_Size(rows), total = 0, size, steps;
    const char *numbers;
    long long later;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!PyArg_ParseTuple(PyList_GetItem(rows, i), "y#nL", &numbers, &size, &steps, &later))
            return NULL;
        if (steps < 0 || steps > size / (Py_ssize_t)sizeof(uint32_t)) {
            PyErr_SetString(PyExc_ValueError, "a row is shorter than its steps");
            return NULL;
        }
        total += size;
    }
    PyObject *joined = PyBytes_FromStringAndSize(NULL, total);
    char *at = joined == NULL ? NULL : PyBytes_AsString(joined);
    for (Py_ssize_t i = 0; at != NULL && i < count; i++) {
        if (!PyArg_ParseTuple(PyList_GetItem(rows, i), "y#nL", &numbers, &size, &steps, &later)) {
            Py_DECREF(joined);
            return NULL;
        }
        memcpy(at, numbers, (size_t)size);
        at += size;
        for (char *start = at - steps * (Py_ssize_t)sizeof(uint32_t); start < at; start += sizeof(uint32_t)) {
            uint32_t number;
            memcpy(&number, start, sizeof number);
            number += (uint32_t)later;
            memcpy(start, &number, sizeof number);
        }
    }
    return joined;
}

/* ---- A driver's functions ------------------------------------------------------------------------------------------ */

/* As nvidia_fast.py packs it: `int function(handle[, argument], answer)`, for an answer that begins with `version`. */
typedef struct {
    int64_t function;
    int32_t argument;
    uint32_t version;
} Question;

enum { NO_ARGUMENT = -1, ANSWER_BYTES = 64 };

typedef struct {
    int64_t code;
    char bytes[ANSWER_BYTES];
} Answer;

static void ask_all(void *device, const Question *questions, Py_ssize_t count, Answer *answers) {
    for (Py_ssize_t i = 0; i < count; i++) {
        Question question = questions[i];
        Answer answer = {0};
        memcpy(answer.bytes, &question.version, sizeof question.version);
        void *function = (void *)(uintptr_t)question.function;
        answer.code = question.argument == NO_ARGUMENT
                          ? ((int (*)(void *, void *))function)(device, answer.bytes)
                          : ((int (*)(void *, int, void *))function)(device, question.argument, answer.bytes);
        answers[i] = answer;
    }
}

static PyObject *ask_driver(PyObject *module, PyObject *args) {
    unsigned long long handle;
    const char *given;
    Py_ssize_t size;
    (void)module;
    if (!PyArg_ParseTuple(args, "Ky#", &handle, &given, &size))
        return NULL;
    Py_ssize_t count = size / (Py_ssize_t)sizeof(Question);
    Question *questions = PyMem_Malloc((size_t)count * (sizeof(Question) + sizeof(Answer)) + 1);
    if (questions == NULL)
        return PyErr_NoMemory();
    Answer *answers = (Answer *)(questions + count);
    memcpy(questions, given, (size_t)count * sizeof *questions);
    /* A sick GPU can hold a call up for seconds: the others go on meanwhile. */
    Py_BEGIN_ALLOW_THREADS
    ask_all((void *)(uintptr_t)handle, questions, count, answers);
    Py_END_ALLOW_THREADS
    PyObject *packed = PyBytes_FromStringAndSize((const char *)answers, count * (Py_ssize_t)sizeof *answers);
    PyMem_Free(questions);
    return packed;
}

/* A number of an answer: what it is called, in which answer and at which byte it is, its letter in Python's struct, and what is made of
   it. */
typedef struct {
    PyObject *name;
    Py_ssize_t answer, offset;
    int letter, make;
} Place;

static PyObject *number_told(const Answer *answer, const Place *place) {
    const char *at = answer->bytes + place->offset;
    uint64_t wide;
    uint32_t narrow;
    int64_t number;
    if (place->letter == 'Q') {
        memcpy(&wide, at, sizeof wide);
        if (wide > INT64_MAX)
            return place->make == 'i' ? PyLong_FromUnsignedLongLong(wide) : NULL;
        number = (int64_t)wide;
    } else {
        memcpy(&narrow, at, sizeof narrow);
        number = place->letter == 'I' ? (int64_t)narrow : (int64_t)(int32_t)narrow;
    }
    switch (place->make) {
    case 'f':
        return PyFloat_FromDouble((double)number);
    case 'm':
        return PyFloat_FromDouble((double)number / 1000);
    case 'b':
        return number > 1 ? NULL : PyList_New(0);
    default:
        return PyLong_FromLongLong(number);
    }
}

static PyObject *values_told(PyObject *module, PyObject *args) {
    const char *given;
    Py_ssize_t size;
    PyObject *places;
    (void)module;
    if (!PyArg_ParseTuple(args, "y#O!", &given, &size, &PyList_Type, &places))
        return NULL;
    Answer answer;
    Py_ssize_t answers = size / (Py_ssize_t)sizeof answer;
    for (Py_ssize_t i = 0; i < answers; i++) {
        memcpy(&answer.code, given + i * (Py_ssize_t)sizeof answer, sizeof answer.code);
        if (answer.code != 0)
            Py_RETURN_NONE;
    }
    PyObject *told = PyDict_New();
    for (Py_ssize_t i = 0; told != NULL && i < PyList_Size(places); i++) {
        Place place;
        PyObject *value = NULL;
        if (PyArg_ParseTuple(PyList_GetItem(places, i), "OnnCC", &place.name, &place.answer, &place.offset, &place.letter,
                             &place.make)) {
            if (place.answer < 0 || place.answer >= answers || place.offset < 0 || place.offset > ANSWER_BYTES - 8) {
                PyErr_SetString(PyExc_ValueError, "a place that no answer has");
            } else {
                memcpy(&answer, given + place.answer * (Py_ssize_t)sizeof answer, sizeof answer);
                value = number_told(&answer, &place);
            }
        }
        if (value == NULL || PyDict_SetItem(told, place.name, value) < 0)
            Py_CLEAR(told);
        Py_XDECREF(value);
    }
    return told == NULL && !PyErr_Occurred() ? Py_NewRef(Py_None) : told;
}

/* ---- Caller: a thread that asks a driver and never runs Python ----------------------------------------------------- */

typedef struct {
    void *device;
    Py_ssize_t begin, count;
} Job;

/* Of both threads; the called one lets go of it, for it may hang in a call for ever. */
typedef struct {
    PyThread_type_lock wanted, done;
    int ended;
    Py_ssize_t jobs, at, only;
    Job *job;
    Question *questions;
    Answer *answers, *heard;
} Work;

enum { NONE = -1 };

static void free_work(Work *work) {
    if (work->wanted != NULL)
        PyThread_free_lock(work->wanted);
    if (work->done != NULL)
        PyThread_free_lock(work->done);
    free(work->job);
    free(work->questions);
    free(work->answers);
    free(work->heard);
    free(work);
}

static void run_caller(void *argument) {
    Work *work = argument;
    while (PyThread_acquire_lock(work->wanted, WAIT_LOCK) && !work->ended) {
        for (Py_ssize_t i = 0; i < work->jobs; i++) {
            Py_ssize_t only = __atomic_load_n(&work->only, __ATOMIC_ACQUIRE);
            if (only != NONE && only != i)
                continue;
            __atomic_store_n(&work->at, i, __ATOMIC_RELEASE);
            Job job = work->job[i];
            ask_all(job.device, work->questions + job.begin, job.count, work->answers + job.begin);
        }
        __atomic_store_n(&work->at, NONE, __ATOMIC_RELEASE);
        PyThread_release_lock(work->done);
    }
    free_work(work);
}

typedef struct {
    PyObject_HEAD
    Work *work;
    int owing, told;
} Caller;

static int Caller_init(Caller *self, PyObject *args, PyObject *kwargs) {
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "") || self->work != NULL)
        return PyErr_Occurred() ? -1 : 0;
    Work *work = calloc(1, sizeof *work);
    if (work == NULL)
        return PyErr_NoMemory(), -1;
    work->at = work->only = NONE;
    work->wanted = PyThread_allocate_lock();
    work->done = PyThread_allocate_lock();
    if (work->wanted == NULL || work->done == NULL) {
        free_work(work);
        return PyErr_NoMemory(), -1;
    }
    PyThread_acquire_lock(work->wanted, NOWAIT_LOCK);
    PyThread_acquire_lock(work->done, NOWAIT_LOCK);
    if (PyThread_start_new_thread(run_caller, work) == (unsigned long)-1) {
        free_work(work);
        PyErr_SetString(PyExc_RuntimeError, "can't start new thread");
        return -1;
    }
    self->work = work;
    return 0;
}

static void Caller_dealloc(Caller *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    if (self->work != NULL) {
        self->work->ended = 1;
        PyThread_release_lock(self->work->wanted);
    }
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* Room for so many; what is there is lost. 0, or -1 with an error set. */
static int make_room(Work *work, Py_ssize_t jobs, Py_ssize_t questions) {
    free(work->job);
    free(work->questions);
    free(work->answers);
    free(work->heard);
    work->jobs = 0;
    work->job = calloc((size_t)jobs + 1, sizeof *work->job);
    work->questions = calloc((size_t)questions + 1, sizeof *work->questions);
    work->answers = calloc((size_t)questions + 1, sizeof *work->answers);
    work->heard = calloc((size_t)questions + 1, sizeof *work->heard);
    if (work->job == NULL || work->questions == NULL || work->answers == NULL || work->heard == NULL)
        return PyErr_NoMemory(), -1;
    return 0;
}

static PyObject *Caller_ask(Caller *self, PyObject *given) {
    Work *work = self->work;
    Py_ssize_t total = 0;
    if (self->owing || !PyList_Check(given)) {
        PyErr_SetString(PyExc_RuntimeError, "the last answers have not been taken, or these are no questions");
        return NULL;
    }
    Py_ssize_t jobs = PyList_Size(given);
    for (int filling = 0; filling < 2; filling++) {
        if (filling && make_room(work, jobs, total) < 0)
            return NULL;
        total = 0;
        for (Py_ssize_t i = 0; i < jobs; i++) {
            unsigned long long handle;
            const char *questions;
            Py_ssize_t size;
            if (!PyArg_ParseTuple(PyList_GetItem(given, i), "Ky#", &handle, &questions, &size))
                return NULL;
            Py_ssize_t count = size / (Py_ssize_t)sizeof(Question);
            if (filling) {
                work->job[i] = (Job){(void *)(uintptr_t)handle, total, count};
                memcpy(work->questions + total, questions, (size_t)count * sizeof(Question));
            }
            total += count;
        }
    }
    work->jobs = jobs;
    work->only = NONE;
    self->owing = 1;
    PyThread_release_lock(work->wanted);
    Py_RETURN_NONE;
}

static PyObject *Caller_again(Caller *self, PyObject *unused) {
    (void)unused;
    if (self->owing) {
        PyErr_SetString(PyExc_RuntimeError, "the last answers have not been taken");
        return NULL;
    }
    self->work->only = NONE;
    self->owing = 1;
    PyThread_release_lock(self->work->wanted);
    Py_RETURN_NONE;
}

/* Whether all answers are there within so many seconds. */
static int are_there(Work *work, double timeout_s) {
    PyLockStatus status;
    Py_BEGIN_ALLOW_THREADS
    status = PyThread_acquire_lock_timed(work->done, timeout_s > 0 ? (long long)(1e6 * timeout_s) : 0, 0);
    Py_END_ALLOW_THREADS
    return status == PY_LOCK_ACQUIRED;
}

/* The answers to all questions are taken, and kept as those of last time. */
static void hear_all(Caller *self) {
    Work *work = self->work;
    Py_ssize_t last = work->jobs - 1, count = last < 0 ? 0 : work->job[last].begin + work->job[last].count;
    memcpy(work->heard, work->answers, (size_t)count * sizeof *work->heard);
    self->owing = self->told = 0;
}

static PyObject *answers_in(const Work *work, const Answer *answers) {
    PyObject *found = PyList_New(work->jobs);
    for (Py_ssize_t i = 0; found != NULL && i < work->jobs; i++) {
        Job job = work->job[i];
        PyObject *packed = PyBytes_FromStringAndSize((const char *)(answers + job.begin), job.count * (Py_ssize_t)sizeof(Answer));
        if (packed == NULL || PyList_SetItem(found, i, packed) < 0)
            Py_CLEAR(found);
    }
    return found;
}

static PyObject *Caller_wait(Caller *self, PyObject *args) {
    double timeout_s;
    if (!PyArg_ParseTuple(args, "d", &timeout_s))
        return NULL;
    if (!self->owing)
        return PyList_New(0);
    if (!self->told && !are_there(self->work, timeout_s))
        Py_RETURN_NONE;
    hear_all(self);
    return answers_in(self->work, self->work->answers);
}

static PyObject *Caller_heard(Caller *self, PyObject *unused) {
    (void)unused;
    return answers_in(self->work, self->work->heard);
}

/* A number of an answer, as a program names it: which answer, at which byte, its letter in Python's struct, what is made of it. */
typedef struct {
    uint8_t answer, offset, letter, make;
} Named;

/* 1, or 0 for one that is not in the answers, or larger than what Python's floats and msgpack's integers agree on. */
static int number_named(const Answer *answers, Py_ssize_t count, Named named, int64_t *number) {
    uint64_t wide;
    uint32_t narrow;
    if (named.answer >= count || named.offset > ANSWER_BYTES - 8)
        return 0;
    const char *at = answers[named.answer].bytes + named.offset;
    memcpy(&wide, at, sizeof wide);
    memcpy(&narrow, at, sizeof narrow);
    *number = named.letter == 'Q' ? (int64_t)wide : named.letter == 'I' ? (int64_t)narrow : (int64_t)(int32_t)narrow;
    return named.letter != 'Q' || wide <= INT64_MAX;
}

/* What answers say now, and said at the last time: in msgpack, 1; 0 where something is not as the program takes it to be. */
static int put_told(Out *out, const Answer *now, const Answer *before, Py_ssize_t count, Named named) {
    int64_t number, earlier;
    if (!number_named(now, count, named, &number))
        return 0;
    switch (named.make) {
    case 'f':
        put_float(out, (double)number);
        return 1;
    case 'm':
        put_float(out, (double)number / 1000);
        return 1;
    case 'b':
        return number <= 1;
    case 'd': /* in thousandths, since the last time */
        if (!number_named(before, count, named, &earlier) || number < earlier)
            return 0;
        put_float(out, (double)(number - earlier) / 1000);
        return 1;
    default:
        put_integer(out, number);
        return 1;
    }
}

/* One device by its program (nvidia_packed.py): a time, and parts that begin with what they are. 1, 0 as put_told, -1 for a program that
   is none. */
static int put_device(Out *out, const char *program, Py_ssize_t size, const Answer *now, const Answer *before, Py_ssize_t count,
                      int64_t now_ns) {
    enum { LITERAL = 'l', VALUE = 'v', AGE = 'a', NOT_ALL_THE_TIME = 'n', SETTLED = 's' };
    const char *at = program, *end = program + size;
    int64_t taken_ns, use, power, energy;
    uint16_t length;
    double age_s = -1;
    Named named[3];
    for (Py_ssize_t i = 0; i < count; i++)
        if (now[i].code != 0)
            return 0;
    if (end - at < (Py_ssize_t)sizeof taken_ns)
        return -1;
    memcpy(&taken_ns, at, sizeof taken_ns);
    for (at += sizeof taken_ns; at < end;) {
        int part = *at++;
        size_t follows = part == LITERAL ? sizeof length : part == AGE ? 0 : (part == SETTLED ? 3 : 1) * sizeof *named;
        if ((size_t)(end - at) < follows)
            return -1;
        memcpy(part == LITERAL ? (void *)&length : (void *)named, at, follows);
        at += follows;
        switch (part) {
        case LITERAL:
            if (end - at < length)
                return -1;
            put(out, at, length);
            at += length;
            break;
        case VALUE:
            if (!put_told(out, now, before, count, named[0]))
                return 0;
            break;
        case AGE:
            put_float(out, age_s = age_s >= 0 ? age_s : rounded((double)(now_ns - taken_ns) / 1e9, 3));
            break;
        case NOT_ALL_THE_TIME:
            if (!number_named(now, count, named[0], &use) || use == 100)
                return 0;
            break;
        case SETTLED:
            if (!number_named(now, count, named[0], &use) || !number_named(now, count, named[1], &power) ||
                !number_named(now, count, named[2], &energy))
                return 0;
            if (use != 0 && power != 0 && (double)energy < 1000 * ((double)power / 1000) * 3.0)
                return 0;
            break;
        default:
            return -1;
        }
    }
    return 1;
}

static PyObject *Caller_packed(Caller *self, PyObject *args) {
    Work *work = self->work;
    double timeout_s;
    long long now_ns;
    PyObject *programs;
    Py_ssize_t size;
    size_t room = 64;
    Out out = {0};
    int known = 1;
    if (!PyArg_ParseTuple(args, "dO!L", &timeout_s, &PyList_Type, &programs, &now_ns))
        return NULL;
    if (!self->owing || self->told || PyList_Size(programs) != work->jobs) {
        PyErr_SetString(PyExc_RuntimeError, "nothing was asked, or not of as many");
        return NULL;
    }
    if (!are_there(work, timeout_s))
        Py_RETURN_NONE;
    self->told = 1;
    for (Py_ssize_t i = 0; i < work->jobs; i++)
        room += PyBytes_Check(PyList_GetItem(programs, i)) ? (size_t)PyBytes_Size(PyList_GetItem(programs, i)) : 0;
    make_space(&out, room);
    put_list(&out, (uint64_t)work->jobs);
    for (Py_ssize_t i = 0; i < work->jobs && known > 0; i++) {
        Job job = work->job[i];
        char *bytes;
        if (PyBytes_AsStringAndSize(PyList_GetItem(programs, i), &bytes, &size) < 0)
            break;
        known = put_device(&out, bytes, size, work->answers + job.begin, work->heard + job.begin, job.count, now_ns);
    }
    if (known < 0)
        PyErr_SetString(PyExc_ValueError, "not a program");
    if (known > 0 && !PyErr_Occurred())
        hear_all(self);
    if (known == 0 && !PyErr_Occurred()) {
        PyMem_Free(out.bytes);
        Py_RETURN_NONE;
    }
    return taken(&out);
}

static PyObject *Caller_at(Caller *self, PyObject *unused) {
    (void)unused;
    return PyLong_FromSsize_t(__atomic_load_n(&self->work->at, __ATOMIC_ACQUIRE));
}

static PyObject *Caller_keep(Caller *self, PyObject *args) {
    Py_ssize_t only;
    if (!PyArg_ParseTuple(args, "n", &only))
        return NULL;
    __atomic_store_n(&self->work->only, only, __ATOMIC_RELEASE);
    Py_RETURN_NONE;
}

static PyMethodDef Caller_methods[] = {
    {"ask", (PyCFunction)Caller_ask, METH_O, "Begins to ask: (device, questions) of each, as for ask_driver."},
    {"again", (PyCFunction)Caller_again, METH_NOARGS, "Begins to ask the same once more."},
    {"packed", (PyCFunction)Caller_packed, METH_VARARGS,
     "What all answers make of a program for each device, in msgpack; None where they are for `wait`."},
    {"heard", (PyCFunction)Caller_heard, METH_NOARGS, "The answers to each that were taken last."},
    {"wait", (PyCFunction)Caller_wait, METH_VARARGS, "The answers to each; None where they are not all there in so many seconds."},
    {"at", (PyCFunction)Caller_at, METH_NOARGS, "The place of the device that is asked now; -1 for none."},
    {"keep", (PyCFunction)Caller_keep, METH_VARARGS, "Lets it ask that one alone of what is left."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot Caller_slots[] = {
    {Py_tp_doc, "A thread that asks a driver and never runs Python: waking it is all that it costs."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_init, Caller_init},
    {Py_tp_dealloc, Caller_dealloc},
    {Py_tp_methods, Caller_methods},
    {0, NULL},
};

static PyType_Spec Caller_spec = {"_native.Caller", sizeof(Caller), 0, Py_TPFLAGS_DEFAULT, Caller_slots};

static PyMethodDef functions[] = {
    {"core_usage", core_usage, METH_VARARGS, "Of /proc/stat and what the last call gave: that, use of the node, of its cores."},
    {"network_rates", network_rates, METH_VARARGS, "Of /proc/net/dev and its last text: its text, the interfaces; see network.py."},
    {"disk_rates", disk_rates, METH_VARARGS, "Of /proc/diskstats and its last text: its text, the disks; see disks.py."},
    {"memory_bytes", memory_bytes, METH_O, "Of /proc/meminfo: memory used and in all, swap used and in all."},
    {"whole_numbers", whole_numbers, METH_O, "The number that each of the open files holds."},
    {"thousandths", thousandths, METH_VARARGS, "Of open files and what stands before each: that and their numbers; see frequency.py."},
    {"port_rates", port_rates, METH_VARARGS, "Of InfiniBand ports and their last counts: their counts, the ports; see infiniband.py."},
    {"rail_readings", rail_readings, METH_VARARGS, "Of RAPL's zones and their last counts: their counts, the rails; see power.py."},
    {"process_readings", process_readings, METH_VARARGS, "Of processes as last read: as read now, the readings; see processes.py."},
    {"join_steps", join_steps, METH_O, "The columns of workers as one; see step_rows.py."},
    {"values_told", values_told, METH_VARARGS, "What answers say by name; None where one is a refusal, or more than numbers."},
    {"ask_driver", ask_driver, METH_VARARGS, "Calls C functions one after another, without Python's lock; their codes and answers."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", NULL, 0, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) {
    PyObject *module = PyModule_Create(&definition), *caller = PyType_FromSpec(&Caller_spec);
    if (module == NULL || caller == NULL || PyModule_AddObjectRef(module, "Caller", caller) < 0)
        Py_CLEAR(module);
    Py_XDECREF(caller);
    return module;
}
