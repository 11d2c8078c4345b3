/* The fold of a node's steps in machine code: what steps.py and arrivals.py do in Python where this was not built.

   A large job brings ten thousand batches a second, and what is done to each in Python is then most of the fold. Only the usual is
   done here; what is not so is left to Python, unchanged.

   Stable ABI of Python 3.11, the first with buffers in it. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <stdint.h>
#include <string.h>

/* Of an array of unsigned 32-bit integers; -1 with an error set for anything else. */
static int get_numbers(PyObject *object, Py_buffer *view) {
    if (PyObject_GetBuffer(object, view, PyBUF_CONTIG_RO | PyBUF_FORMAT) < 0)
        return -1;
    if (view->itemsize != sizeof(uint32_t) || view->format == NULL || strcmp(view->format, "I") != 0) {
        PyBuffer_Release(view);
        PyErr_SetString(PyExc_TypeError, "not an array of unsigned 32-bit integers");
        return -1;
    }
    return 0;
}

/* Names of attributes, made once. */
static PyObject *n_sums, *n_first_start, *n_first_batches, *n_durations, *n_values, *n_room, *n_settle, *n_batches, *n_kept_steps,
    *n_checkpoints, *n_frombytes, *n_thin, *n_worker, *n_last_step, *n_last_end, *n_epoch, *n_summed_steps, *n_add, *n_extend,
    *n_waits;

enum { DURATION, INPUT_WAIT, COMPUTE, EXPOSED, OPTIMIZER, SAMPLES, STARTS, USUAL_COLUMNS };
enum { FIRST_STEP, STEPS, BEGIN, END, COLUMNS, NUMBERS, BATCH_FIELDS };

/* Fills a new tuple with objects, which it takes over; NULL if one of them is. */
static PyObject *filled(PyObject *tuple, Py_ssize_t count, PyObject **objects) {
    int whole = tuple != NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        whole = whole && objects[i] != NULL;
        if (tuple == NULL || PyTuple_SetItem(tuple, i, objects[i]) < 0)
            whole = 0;
    }
    if (!whole)
        Py_CLEAR(tuple);
    else
        PyObject_GC_UnTrack(tuple); /* it holds nothing that could lead back to it, and hundreds of thousands are kept */
    return tuple;
}

/* A Batch of steps of which all the usual columns are known; `numbers` are those of `part`, which it takes over. */
static PyObject *usual_batch(PyObject *kind, PyObject *part, const uint32_t *numbers, PyObject *first_step, PyObject *steps,
                             double origin, PyObject *columns) {
    allocfunc make = (allocfunc)PyType_GetSlot((PyTypeObject *)kind, Py_tp_alloc);
    Py_ssize_t count = PyLong_AsSsize_t(steps);
    const uint32_t *starts = numbers + STARTS * count;
    double end = origin + ((uint64_t)starts[count - 1] + numbers[count - 1]) / 1e9;
    PyObject *fields[BATCH_FIELDS] = {Py_NewRef(first_step),
                                      Py_NewRef(steps),
                                      PyFloat_FromDouble(origin + starts[0] / 1e9),
                                      PyFloat_FromDouble(end),
                                      Py_NewRef(columns),
                                      part};
    return filled(make((PyTypeObject *)kind, BATCH_FIELDS), BATCH_FIELDS, fields);
}

/* (rank, worker, Batch) of each worker of a table with the usual columns. */
static PyObject *usual_told(PyObject *module, PyObject *args) {
    PyObject *kind, *object, *ranks, *workers, *first_steps, *counts, *columns, *found = NULL;
    double origin;
    Py_buffer view;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!OdO!O!O!O!O", &PyType_Type, &kind, &object, &origin, &PyList_Type, &ranks, &PyList_Type,
                          &workers, &PyList_Type, &first_steps, &PyTuple_Type, &counts, &columns) ||
        get_numbers(object, &view) < 0)
        return NULL;
    Py_ssize_t length = view.len / (Py_ssize_t)sizeof(uint32_t), place = 0, told = PyTuple_Size(counts);
    if (PyList_Size(ranks) == told && PyList_Size(workers) == told && PyList_Size(first_steps) == told &&
        PyType_IsSubtype((PyTypeObject *)kind, &PyTuple_Type))
        found = PyList_New(told);
    else
        PyErr_SetString(PyExc_ValueError, "lists of different lengths");
    for (Py_ssize_t i = 0; found != NULL && i < told; i++) {
        PyObject *steps = PyTuple_GetItem(counts, i), *part = NULL, *batch = NULL, *row = NULL;
        Py_ssize_t count = PyLong_AsSsize_t(steps);
        if (count < 1 || count > (length - place) / USUAL_COLUMNS) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "columns of different lengths");
        } else {
            part = PySequence_GetSlice(object, place, place + USUAL_COLUMNS * count);
        }
        if (part != NULL && PyObject_GC_IsTracked(part))
            PyObject_GC_UnTrack(part); /* as in `filled` */
        if (part != NULL)
            batch = usual_batch(kind, part, (const uint32_t *)view.buf + place, PyList_GetItem(first_steps, i), steps, origin,
                                columns);
        if (batch != NULL)
            row = PyTuple_Pack(3, PyList_GetItem(ranks, i), PyList_GetItem(workers, i), batch);
        Py_XDECREF(batch);
        place += USUAL_COLUMNS * count;
        if (row == NULL || PyList_SetItem(found, i, row) < 0)
            Py_CLEAR(found);
    }
    PyBuffer_Release(&view);
    return found;
}

/* A number of a list from 0 on; -1 for anything else, without an error. */
static int64_t get_number(PyObject *list, Py_ssize_t place) {
    int64_t number = PyLong_AsLongLong(PyList_GetItem(list, place));
    if (PyErr_Occurred())
        PyErr_Clear();
    return number >= 0 ? number : -1;
}

/* The sum, spread evenly over `count` steps; whether every step fits. */
static int spread_sum(uint32_t *numbers, Py_ssize_t count, int64_t sum) {
    int64_t each = sum / count, more = sum % count;
    if (sum < 0 || each >= UINT32_MAX)
        return 0;
    for (Py_ssize_t i = 0; i < count; i++)
        numbers[i] = (uint32_t)(each + (i >= count - more));
    return 1;
}

/* The starts of `count` steps, so that the last one, `duration` long, ends where it did; whether they fit. */
static int spread_starts(uint32_t *numbers, Py_ssize_t count, int64_t start, int64_t span, int64_t duration) {
    int64_t last = span > duration ? span - duration : 0;
    if (start < 0 || span < 0 || start > UINT32_MAX || last > UINT32_MAX - start)
        return 0;
    for (Py_ssize_t i = 0; i < count - 1; i++)
        numbers[i] = (uint32_t)(start + last * i / (count - 1));
    numbers[count - 1] = (uint32_t)(start + last);
    return 1;
}

/* The usual columns of each worker's steps, of which only sums are known: bytes; None where one is not known or does not fit. */
static PyObject *spread_sums(PyObject *module, PyObject *args) {
    PyObject *counts, *starts, *spans, *sums[STARTS], *found;
    Py_ssize_t steps = 0, most;
    (void)module;
    if (!PyArg_ParseTuple(args, "nO!O!O!O!O!O!O!O!O!", &most, &PyList_Type, &counts, &PyList_Type, &starts, &PyList_Type, &spans,
                          &PyList_Type, &sums[0], &PyList_Type, &sums[1], &PyList_Type, &sums[2], &PyList_Type, &sums[3],
                          &PyList_Type, &sums[4], &PyList_Type, &sums[5]))
        return NULL;
    Py_ssize_t workers = PyList_Size(counts);
    int whole = PyList_Size(starts) == workers && PyList_Size(spans) == workers;
    for (int column = 0; column < STARTS; column++)
        whole = whole && PyList_Size(sums[column]) == workers;
    for (Py_ssize_t i = 0; whole && i < workers; i++) {
        int64_t count = get_number(counts, i);
        whole = count > 0 && count <= most - steps;
        steps += whole ? count : 0;
    }
    if (!whole)
        return PyErr_Format(PyExc_ValueError, "lists of different lengths, a worker without steps, or too many steps");
    if ((found = PyBytes_FromStringAndSize(NULL, steps * USUAL_COLUMNS * (Py_ssize_t)sizeof(uint32_t))) == NULL)
        return NULL;
    uint32_t *numbers = (uint32_t *)PyBytes_AsString(found);
    for (Py_ssize_t i = 0; whole && i < workers; i++) {
        Py_ssize_t count = (Py_ssize_t)get_number(counts, i);
        for (int column = 0; whole && column < STARTS; column++)
            whole = spread_sum(numbers + column * count, count, get_number(sums[column], i));
        whole = whole && spread_starts(numbers + STARTS * count, count, get_number(starts, i), get_number(spans, i),
                                       numbers[count - 1]);
        numbers += USUAL_COLUMNS * count;
    }
    if (!whole)
        Py_CLEAR(found);
    return whole ? found : Py_NewRef(Py_None);
}

/* The sum of two whole numbers of any size. */
static PyObject *added(PyObject *before, uint64_t more) {
    int overflow;
    long long known = PyLong_AsLongLongAndOverflow(before, &overflow), sum;
    if (known == -1 && PyErr_Occurred())
        return NULL;
    if (!overflow && more <= INT64_MAX && !__builtin_add_overflow(known, (long long)more, &sum))
        return PyLong_FromLongLong(sum);
    PyObject *number = PyLong_FromUnsignedLongLong(more), *found = number == NULL ? NULL : PyNumber_Add(before, number);
    Py_XDECREF(number);
    return found;
}

/* The column that each of Sums in batches.py is of; -1 where it counts steps. */
static const int SUMMED[] = {-1, DURATION, SAMPLES, -1, INPUT_WAIT, COMPUTE, EXPOSED, OPTIMIZER, -1, -1, -1, -1};

/* The steps of a batch with the usual columns, all known, whose numbers it adds up (unless `sums` is NULL); 0 for another batch.
   Numbers with signs are those of which some are not known. */
static Py_ssize_t add_usual(PyObject *batch, PyObject *usual, uint64_t *sums) {
    Py_buffer view;
    if (PyTuple_GetItem(batch, COLUMNS) != usual)
        return 0;
    if (get_numbers(PyTuple_GetItem(batch, NUMBERS), &view) < 0) {
        PyErr_Clear();
        return 0;
    }
    const uint32_t *all = view.buf;
    Py_ssize_t count = PyLong_AsSsize_t(PyTuple_GetItem(batch, STEPS));
    if (count < 1 || view.len != (Py_ssize_t)sizeof(uint32_t) * USUAL_COLUMNS * count)
        count = 0;
    for (int column = 0; sums != NULL && column < STARTS; column++)
        for (Py_ssize_t i = column * count; i < (column + 1) * count; i++)
            sums[column] += all[i];
    PyBuffer_Release(&view);
    return count;
}

/* Earlier sums, in the order of Sums in batches.py, and those of a batch. What counts steps is one object where it is equal. */
static PyObject *added_sums(PyObject *before, Py_ssize_t count, const uint64_t *sums) {
    PyObject *found[12] = {NULL};
    if (before == NULL || !PyTuple_Check(before) || PyTuple_Size(before) != 12) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "not twelve sums");
        return NULL;
    }
    for (int i = 0; i < 12; i++) {
        PyObject *known = PyTuple_GetItem(before, i);
        int as_steps = i > 0 && SUMMED[i] < 0 && known == PyTuple_GetItem(before, 0);
        found[i] = as_steps ? Py_XNewRef(found[0]) : added(known, SUMMED[i] < 0 ? (uint64_t)count : sums[SUMMED[i]]);
    }
    return filled(PyTuple_New(12), 12, found);
}

/* Calls a method that gives nothing; -1 with an error set. */
static int call(PyObject *object, PyObject *method, PyObject *argument) {
    PyObject *result = PyObject_CallMethodObjArgs(object, method, argument, NULL);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* An attribute that is a small number; -1 with an error set. */
static Py_ssize_t get_size(PyObject *object, PyObject *name) {
    PyObject *value = PyObject_GetAttr(object, name);
    Py_ssize_t size = value == NULL ? -1 : PyLong_AsSsize_t(value);
    Py_XDECREF(value);
    return size;
}

static int set_size(PyObject *object, PyObject *name, Py_ssize_t size) {
    PyObject *value = PyLong_FromSsize_t(size);
    int failed = value == NULL || PyObject_SetAttr(object, name, value) < 0;
    Py_XDECREF(value);
    return failed ? -1 : 0;
}

/* Quantiles.extend with the first `count` numbers. */
static int extend_quantiles(PyObject *quantiles, PyObject *numbers, Py_ssize_t count) {
    PyObject *part = PySequence_GetSlice(numbers, 0, count), *waiting = PyObject_GetAttr(quantiles, n_values);
    PyObject *joined = part == NULL || waiting == NULL ? NULL : PySequence_InPlaceConcat(waiting, part);
    int failed = joined == NULL;
    if (failed && part != NULL && waiting != NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear(); /* an array of another kind */
        failed = call(quantiles, n_extend, part) < 0;
    } else if (!failed) {
        Py_ssize_t room = get_size(quantiles, n_room);
        failed = room < 0 || (PySequence_Size(joined) > room && call(quantiles, n_settle, NULL) < 0);
    }
    Py_XDECREF(joined);
    Py_XDECREF(waiting);
    Py_XDECREF(part);
    return failed ? -1 : 0;
}

/* RankSteps._checkpoint. */
static int keep_sums(PyObject *steps, PyObject *sums, Py_ssize_t most) {
    double values[12];
    for (int i = 0; i < 12; i++)
        values[i] = PyLong_AsDouble(PyTuple_GetItem(sums, i));
    PyObject *bytes = PyErr_Occurred() ? NULL : PyBytes_FromStringAndSize((const char *)values, sizeof(values));
    PyObject *kept = bytes == NULL ? NULL : PyObject_GetAttr(steps, n_checkpoints);
    int failed = kept == NULL || call(kept, n_frombytes, bytes) < 0;
    if (!failed && PySequence_Size(kept) > most)
        failed = call(steps, n_thin, NULL) < 0;
    Py_XDECREF(kept);
    Py_XDECREF(bytes);
    return failed ? -1 : 0;
}

/* Appends to `batches`, and drops the oldest while the rest holds `recent` steps. */
static int keep_batch(PyObject *steps, PyObject *batch, Py_ssize_t count, Py_ssize_t recent) {
    PyObject *batches = PyObject_GetAttr(steps, n_batches);
    Py_ssize_t kept = get_size(steps, n_kept_steps) + count, old = 0;
    int failed = batches == NULL || kept < count || PyList_Append(batches, batch) < 0;
    while (!failed && kept > recent) {
        Py_ssize_t size = PyLong_AsSsize_t(PyTuple_GetItem(PyList_GetItem(batches, old), STEPS));
        failed = size < 0;
        if (kept - size < recent)
            break;
        kept -= size;
        old++;
    }
    failed = failed || (old > 0 && PyList_SetSlice(batches, 0, old, NULL) < 0) || set_size(steps, n_kept_steps, kept) < 0;
    Py_XDECREF(batches);
    return failed ? -1 : 0;
}

/* Step times go into the quantiles; steps of which only sums came are counted. */
static int note_durations(PyObject *steps, PyObject *numbers, Py_ssize_t count, int summed) {
    if (summed) {
        Py_ssize_t before = get_size(steps, n_summed_steps);
        return before < 0 ? -1 : set_size(steps, n_summed_steps, before + count);
    }
    PyObject *durations = PyObject_GetAttr(steps, n_durations);
    int failed = durations == NULL || extend_quantiles(durations, numbers, count) < 0;
    Py_XDECREF(durations);
    return failed ? -1 : 0;
}

/* RankSteps.add of a batch of `count` steps with the usual columns, which add up to `more`. */
static int add_batch(PyObject *steps, PyObject *worker, PyObject *batch, PyObject *epoch, Py_ssize_t prefix, Py_ssize_t recent,
                     int summed, Py_ssize_t count, const uint64_t *more) {
    PyObject *before = PyObject_GetAttr(steps, n_sums), *sums = added_sums(before, count, more);
    Py_ssize_t told = sums == NULL ? -1 : PyLong_AsSsize_t(PyTuple_GetItem(before, 0));
    long long first_step = PyLong_AsLongLong(PyTuple_GetItem(batch, FIRST_STEP));
    PyObject *last_step = PyLong_FromLongLong(first_step + count - 1);
    int failed = told < 0 || last_step == NULL || PyErr_Occurred();
    if (!failed && told < prefix) {
        PyObject *first = PyObject_GetAttr(steps, n_first_batches);
        failed = first == NULL || PyList_Append(first, batch) < 0 ||
                 (told == 0 && PyObject_SetAttr(steps, n_first_start, PyTuple_GetItem(batch, BEGIN)) < 0);
        Py_XDECREF(first);
    }
    failed = failed || PyObject_SetAttr(steps, n_sums, sums) < 0;
    if (!failed && told + count > prefix)
        failed = keep_sums(steps, sums, prefix * 12) < 0;
    failed = failed || note_durations(steps, PyTuple_GetItem(batch, NUMBERS), count, summed) < 0 ||
             keep_batch(steps, batch, count, recent) < 0 || PyObject_SetAttr(steps, n_worker, worker) < 0 ||
             PyObject_SetAttr(steps, n_last_step, last_step) < 0 ||
             PyObject_SetAttr(steps, n_last_end, PyTuple_GetItem(batch, END)) < 0 ||
             (epoch != Py_None && PyObject_SetAttr(steps, n_epoch, epoch) < 0);
    Py_XDECREF(last_step);
    Py_XDECREF(sums);
    Py_XDECREF(before);
    return failed ? -1 : 0;
}

/* A row of what is told: borrowed rank, worker and batch; -1 with an error set for anything else. */
static int get_told(PyObject *row, PyObject **rank, PyObject **worker, PyObject **batch) {
    if (row == NULL || !PyTuple_Check(row) || PyTuple_Size(row) != 3 || !PyTuple_Check(PyTuple_GetItem(row, 2)) ||
        PyTuple_Size(PyTuple_GetItem(row, 2)) != BATCH_FIELDS) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "not a list of (rank, worker, batch)");
        return -1;
    }
    *rank = PyTuple_GetItem(row, 0), *worker = PyTuple_GetItem(row, 1), *batch = PyTuple_GetItem(row, 2);
    return 0;
}

/* Twelve sums, in the order of Sums in batches.py. */
static PyObject *twelve(uint64_t steps, const uint64_t *sums) {
    PyObject *found[12];
    for (int i = 0; i < 12; i++)
        found[i] = PyLong_FromUnsignedLongLong(SUMMED[i] < 0 ? steps : sums[SUMMED[i]]);
    return filled(PyTuple_New(12), 12, found);
}

/* The sums of batches; None where one has not the usual columns. */
static PyObject *sums_of(PyObject *module, PyObject *args) {
    PyObject *batches, *usual;
    uint64_t steps = 0, sums[STARTS] = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "O!O", &PyList_Type, &batches, &usual))
        return NULL;
    for (Py_ssize_t i = 0; i < PyList_Size(batches); i++) {
        PyObject *batch = PyList_GetItem(batches, i);
        if (!PyTuple_Check(batch) || PyTuple_Size(batch) != BATCH_FIELDS)
            return PyErr_Format(PyExc_TypeError, "not a list of batches");
        Py_ssize_t count = add_usual(batch, usual, sums);
        if (count == 0)
            return Py_NewRef(Py_None);
        steps += (uint64_t)count;
    }
    return twelve(steps, sums);
}

/* Each batch to the steps of its rank, which are made where they are not there yet. Gives the sums of all batches, as sums_of. */
static PyObject *add_batches(PyObject *module, PyObject *args) {
    PyObject *ranks, *told, *epoch, *make, *usual;
    Py_ssize_t prefix, recent;
    uint64_t all = 0, total[STARTS] = {0};
    int summed, all_usual = 1;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!O!OOOnnp", &PyDict_Type, &ranks, &PyList_Type, &told, &epoch, &make, &usual, &prefix, &recent,
                          &summed))
        return NULL;
    for (Py_ssize_t i = 0; i < PyList_Size(told); i++) {
        PyObject *rank, *worker, *batch, *steps;
        if (get_told(PyList_GetItem(told, i), &rank, &worker, &batch) < 0)
            return NULL;
        steps = Py_XNewRef(PyDict_GetItemWithError(ranks, rank));
        if (steps == NULL && !PyErr_Occurred() && (steps = PyObject_CallFunctionObjArgs(make, rank, NULL)) != NULL &&
            PyDict_SetItem(ranks, rank, steps) < 0)
            Py_CLEAR(steps);
        if (steps == NULL)
            return NULL;
        uint64_t sums[STARTS] = {0};
        Py_ssize_t count = add_usual(batch, usual, sums);
        int failed;
        if (count > 0) {
            failed = add_batch(steps, worker, batch, epoch, prefix, recent, summed, count, sums) < 0;
            all += (uint64_t)count;
            for (int column = 0; column < STARTS; column++)
                total[column] += sums[column];
        } else {
            PyObject *result = PyObject_CallMethodObjArgs(steps, n_add, batch, worker, epoch, summed ? Py_True : Py_False, NULL);
            failed = result == NULL;
            all_usual = 0;
            Py_XDECREF(result);
        }
        Py_DECREF(steps);
        if (failed)
            return NULL;
    }
    return all_usual ? twelve(all, total) : Py_NewRef(Py_None);
}

/* Whether no batch begins before the end of what its rank has of the same worker. */
static PyObject *all_new(PyObject *module, PyObject *args) {
    PyObject *ranks, *told;
    double back_s, pause_s;
    int new = 1;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!O!dd", &PyDict_Type, &ranks, &PyList_Type, &told, &back_s, &pause_s))
        return NULL;
    for (Py_ssize_t i = 0; new > 0 && i < PyList_Size(told); i++) {
        PyObject *rank, *worker, *batch, *steps;
        if (get_told(PyList_GetItem(told, i), &rank, &worker, &batch) < 0)
            return NULL;
        if ((steps = PyDict_GetItemWithError(ranks, rank)) == NULL)
            continue;
        PyObject *last = PyObject_GetAttr(steps, n_last_step), *known = NULL;
        int old = last == NULL ? -1 : PyObject_RichCompareBool(PyTuple_GetItem(batch, FIRST_STEP), last, Py_LE);
        if (old > 0 && (known = PyObject_GetAttr(steps, n_worker)) != NULL)
            old = PyObject_RichCompareBool(known, worker, Py_EQ);
        PyObject *end = old == 0 ? PyObject_GetAttr(steps, n_last_end) : NULL;
        if (end != NULL && PyFloat_Check(end)) {
            double since = PyFloat_AsDouble(PyTuple_GetItem(batch, BEGIN)) - PyFloat_AsDouble(end);
            old = since < -back_s || since > pause_s;
        }
        new = old < 0 || (old == 0 && end == NULL) ? -1 : !old;
        Py_XDECREF(end);
        Py_XDECREF(known);
        Py_XDECREF(last);
    }
    return new < 0 || PyErr_Occurred() ? NULL : PyBool_FromLong(new);
}

/* Takes what was waited into the rows of ranks, which begin with `next_step`, from `place` on until a batch does not follow what is
   there: (its place, ranks that have all of the next block since). */
static PyObject *arrive(PyObject *module, PyObject *args) {
    PyObject *ranks, *told, *lead, *usual;
    Py_ssize_t place, block, most, ready = 0;
    long long next_step;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!O!nOOLnn", &PyDict_Type, &ranks, &PyList_Type, &told, &place, &lead, &usual, &next_step, &block,
                          &most))
        return NULL;
    for (; place < PyList_Size(told); place++) {
        PyObject *rank, *worker, *batch;
        if (get_told(PyList_GetItem(told, place), &rank, &worker, &batch) < 0)
            return NULL;
        PyObject *arrival = PyDict_GetItemWithError(ranks, rank);
        int same = PyObject_RichCompareBool(rank, lead, Py_EQ);
        if (PyErr_Occurred())
            return NULL;
        Py_ssize_t count = arrival == NULL || same ? 0 : add_usual(batch, usual, NULL);
        if (count == 0)
            break;
        PyObject *waits = PyObject_GetAttr(arrival, n_waits), *part = NULL, *joined;
        Py_ssize_t waiting = waits == NULL ? -1 : PySequence_Size(waits);
        int follows = PyLong_AsLongLong(PyTuple_GetItem(batch, FIRST_STEP)) == next_step + waiting && waiting + count <= most;
        if (!PyErr_Occurred() && follows)
            part = PySequence_GetSlice(PyTuple_GetItem(batch, NUMBERS), EXPOSED * count, (EXPOSED + 1) * count);
        joined = part == NULL ? NULL : PySequence_InPlaceConcat(waits, part);
        Py_XDECREF(part);
        Py_XDECREF(waits);
        if (joined == NULL) {
            if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_TypeError))
                return NULL;
            PyErr_Clear(); /* some of its waits are not known */
            break;
        }
        Py_DECREF(joined);
        ready += waiting < block && block <= waiting + count;
    }
    return Py_BuildValue("nn", place, ready);
}

/* Adds the first `block` waits of a rank to `least` and gives their sum; -1 with or without an error set where it cannot. */
static int64_t add_waits(PyObject *waits, uint32_t *least, Py_ssize_t block) {
    Py_buffer view;
    int64_t sum = -1;
    if (waits == NULL || get_numbers(waits, &view) < 0)
        return -1;
    if (view.len / (Py_ssize_t)sizeof(uint32_t) >= block) {
        const uint32_t *numbers = view.buf;
        sum = 0;
        for (Py_ssize_t i = 0; i < block; i++) {
            sum += numbers[i];
            least[i] = numbers[i] < least[i] ? numbers[i] : least[i];
        }
    }
    PyBuffer_Release(&view);
    return sum;
}

/* Takes the first `block` waits off each of `count` ranks; how many have as many more, -1 with an error set. */
static Py_ssize_t next_block(PyObject **waits, Py_ssize_t count, Py_ssize_t block) {
    Py_ssize_t ready = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (PySequence_DelSlice(waits[i], 0, block) < 0)
            return -1;
        ready += PySequence_Size(waits[i]) >= block;
    }
    return ready;
}

/* (sum of each rank's waits, sum of the least waits of any, ranks that are ready again) of the next block, which is taken off;
   None, and nothing is changed, where some wait is not known. */
static PyObject *join_block(PyObject *module, PyObject *args) {
    PyObject *ranks, *rank, *arrival, *found = NULL;
    Py_ssize_t block, place = 0, count = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!n", &PyDict_Type, &ranks, &block))
        return NULL;
    if (block < 1) {
        PyErr_SetString(PyExc_ValueError, "a block has steps");
        return NULL;
    }
    PyObject *sums = PyList_New(PyDict_Size(ranks)), **waits = PyMem_Calloc((size_t)PyDict_Size(ranks) + 1, sizeof(PyObject *));
    uint32_t *least = PyMem_Malloc((size_t)block * sizeof(uint32_t));
    int known = sums != NULL && waits != NULL && least != NULL;
    if (known)
        memset(least, 0xff, (size_t)block * sizeof(uint32_t));
    else
        PyErr_NoMemory();
    while (known && PyDict_Next(ranks, &place, &rank, &arrival)) {
        waits[count] = PyObject_GetAttr(arrival, n_waits);
        int64_t sum = add_waits(waits[count], least, block);
        PyObject *number = sum < 0 ? NULL : PyLong_FromLongLong(sum);
        known = number != NULL && PyList_SetItem(sums, count, number) == 0;
        count++;
    }
    Py_ssize_t ready = known ? next_block(waits, count, block) : -1;
    uint64_t transfer = 0;
    for (Py_ssize_t i = 0; known && i < block; i++)
        transfer += least[i];
    if (ready >= 0) {
        found = Py_BuildValue("OKn", sums, (unsigned long long)transfer, ready);
    } else if (!known && (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_TypeError))) {
        PyErr_Clear();
        found = Py_NewRef(Py_None);
    }
    for (Py_ssize_t i = 0; waits != NULL && i < count; i++)
        Py_XDECREF(waits[i]);
    PyMem_Free(waits);
    PyMem_Free(least);
    Py_XDECREF(sums);
    return found;
}

static const struct {
    PyObject **name;
    const char *text;
} names[] = {
    {&n_sums, "sums"},
    {&n_first_start, "first_start"},
    {&n_first_batches, "first_batches"},
    {&n_durations, "durations"},
    {&n_values, "values"},
    {&n_room, "room"},
    {&n_settle, "settle"},
    {&n_batches, "batches"},
    {&n_kept_steps, "kept_steps"},
    {&n_checkpoints, "checkpoints"},
    {&n_frombytes, "frombytes"},
    {&n_thin, "thin"},
    {&n_worker, "worker"},
    {&n_last_step, "last_step"},
    {&n_last_end, "last_end"},
    {&n_epoch, "epoch"},
    {&n_summed_steps, "summed_steps"},
    {&n_add, "add"},
    {&n_extend, "extend"},
    {&n_waits, "waits"},
};

static PyMethodDef functions[] = {
    {"usual_told", usual_told, METH_VARARGS, "(rank, worker, Batch) of each worker of a table with the usual columns."},
    {"spread_sums", spread_sums, METH_VARARGS, "The usual columns of each worker's steps, of which only sums are known."},
    {"add_batches", add_batches, METH_VARARGS, "Each batch to the steps of its rank."},
    {"sums_of", sums_of, METH_VARARGS, "The sums of batches with the usual columns."},
    {"all_new", all_new, METH_VARARGS, "Whether no batch is there already, or begins before its rank's last step ended or long after."},
    {"arrive", arrive, METH_VARARGS, "Takes what was waited into the rows of ranks."},
    {"join_block", join_block, METH_VARARGS, "Sums of the next block of waits, which is taken off."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_fold", NULL, 0, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__fold(void) {
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if ((*names[i].name = PyUnicode_InternFromString(names[i].text)) == NULL)
            return NULL;
    return PyModule_Create(&definition);
}
