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
static PyObject *n_sums, *n_first_start, *n_first_batches, *n_durations, *n_values, *n_count, *n_room, *n_settle, *n_micro_batches,
    *n_batches, *n_kept_steps, *n_checkpoints, *n_frombytes, *n_thin, *n_append, *n_popleft, *n_worker, *n_last_step, *n_last_end,
    *n_epoch, *n_summed_steps, *n_add, *n_extend, *n_waits, *n_first_step;

enum { DURATION, INPUT_WAIT, COMPUTE, EXPOSED, OPTIMIZER, SAMPLES, STARTS, USUAL_COLUMNS };
enum { FIRST_STEP, STEPS, BEGIN, END, COLUMNS, NUMBERS, BATCH_FIELDS };

/* A tuple of objects, which it takes over; NULL if one of them is. */
static PyObject *tuple_of(Py_ssize_t count, PyObject **objects) {
    PyObject *tuple = PyTuple_New(count);
    int whole = tuple != NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        whole = whole && objects[i] != NULL;
        if (tuple == NULL || PyTuple_SetItem(tuple, i, objects[i]) < 0)
            whole = 0;
    }
    if (!whole)
        Py_CLEAR(tuple);
    return tuple;
}

/* A Batch of steps of which all the usual columns are known; `numbers` are those of `part`, which it takes over. */
static PyObject *usual_batch(PyObject *kind, PyObject *part, const uint32_t *numbers, PyObject *first_step, PyObject *steps,
                             double origin, PyObject *columns) {
    static newfunc make = NULL;
    Py_ssize_t count = PyLong_AsSsize_t(steps);
    const uint32_t *starts = numbers + STARTS * count;
    double end = origin + ((uint64_t)starts[count - 1] + numbers[count - 1]) / 1e9;
    PyObject *fields[BATCH_FIELDS] = {Py_NewRef(first_step),
                                      Py_NewRef(steps),
                                      PyFloat_FromDouble(origin + starts[0] / 1e9),
                                      PyFloat_FromDouble(end),
                                      Py_NewRef(columns),
                                      part};
    PyObject *tuple = tuple_of(BATCH_FIELDS, fields), *given = tuple == NULL ? NULL : PyTuple_Pack(1, tuple), *made = NULL;
    if (make == NULL)
        make = (newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new);
    if (given != NULL)
        made = make((PyTypeObject *)kind, given, NULL);
    if (made != NULL)
        PyObject_GC_UnTrack(made); /* it holds nothing that could lead back to it, and hundreds of thousands are kept */
    Py_XDECREF(given);
    Py_XDECREF(tuple);
    return made;
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

/* Adds up the usual columns of `count` numbers each; -1 with an error set. */
static int add_columns(PyObject *numbers, Py_ssize_t count, uint64_t *sums) {
    Py_buffer view;
    if (get_numbers(numbers, &view) < 0)
        return -1;
    const uint32_t *all = view.buf;
    int whole = count > 0 && view.len == (Py_ssize_t)sizeof(uint32_t) * USUAL_COLUMNS * count;
    for (int column = 0; whole && column < STARTS; column++)
        for (Py_ssize_t i = column * count; i < (column + 1) * count; i++)
            sums[column] += all[i];
    PyBuffer_Release(&view);
    if (!whole)
        PyErr_SetString(PyExc_ValueError, "columns of different lengths");
    return whole ? 0 : -1;
}

/* Earlier sums, in the order of Sums in batches.py, and those of a batch. What counts steps is one object where it is equal. */
static PyObject *added_sums(PyObject *before, PyObject *numbers, Py_ssize_t count) {
    PyObject *found[12] = {NULL};
    uint64_t sums[STARTS] = {0};
    if (before == NULL || !PyTuple_Check(before) || PyTuple_Size(before) != 12) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "not twelve sums");
        return NULL;
    }
    if (add_columns(numbers, count, sums) < 0)
        return NULL;
    for (int i = 0; i < 12; i++) {
        PyObject *known = PyTuple_GetItem(before, i);
        int as_steps = i > 0 && SUMMED[i] < 0 && known == PyTuple_GetItem(before, 0);
        found[i] = as_steps ? Py_XNewRef(found[0]) : added(known, SUMMED[i] < 0 ? (uint64_t)count : sums[SUMMED[i]]);
    }
    PyObject *made = tuple_of(12, found);
    if (made != NULL)
        PyObject_GC_UnTrack(made);
    return made;
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
        Py_ssize_t known = get_size(quantiles, n_count), room = get_size(quantiles, n_room);
        failed = known < 0 || room < 0 || set_size(quantiles, n_count, known + count) < 0;
        if (!failed && PySequence_Size(joined) > room)
            failed = call(quantiles, n_settle, NULL) < 0;
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
    Py_ssize_t kept = get_size(steps, n_kept_steps) + count;
    int failed = batches == NULL || kept < count || call(batches, n_append, batch) < 0;
    while (!failed) {
        PyObject *oldest = PySequence_GetItem(batches, 0);
        Py_ssize_t size = oldest == NULL ? -1 : PyLong_AsSsize_t(PyTuple_GetItem(oldest, STEPS));
        Py_XDECREF(oldest);
        if (size < 0 || kept - size < recent) {
            failed = size < 0;
            break;
        }
        kept -= size;
        failed = call(batches, n_popleft, NULL) < 0;
    }
    failed = failed || set_size(steps, n_kept_steps, kept) < 0;
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

/* RankSteps.add of a batch with the usual columns. */
static int add_batch(PyObject *steps, PyObject *worker, PyObject *batch, PyObject *epoch, Py_ssize_t prefix, Py_ssize_t recent,
                     int summed) {
    PyObject *numbers = PyTuple_GetItem(batch, NUMBERS);
    PyObject *before = PyObject_GetAttr(steps, n_sums);
    Py_ssize_t count = PyLong_AsSsize_t(PyTuple_GetItem(batch, STEPS)), micro = get_size(steps, n_micro_batches);
    PyObject *sums = added_sums(before, numbers, count);
    Py_ssize_t told = sums == NULL ? -1 : PyLong_AsSsize_t(PyTuple_GetItem(before, 0));
    PyObject *last = PyNumber_Add(PyTuple_GetItem(batch, FIRST_STEP), PyTuple_GetItem(batch, STEPS)), *one = PyLong_FromLong(1);
    PyObject *last_step = last == NULL || one == NULL ? NULL : PyNumber_Subtract(last, one);
    int failed = told < 0 || count < 1 || micro < 0 || last_step == NULL;
    if (!failed && told < prefix) {
        PyObject *first = PyObject_GetAttr(steps, n_first_batches);
        failed = first == NULL || PyList_Append(first, batch) < 0 ||
                 (told == 0 && PyObject_SetAttr(steps, n_first_start, PyTuple_GetItem(batch, BEGIN)) < 0);
        Py_XDECREF(first);
    }
    failed = failed || PyObject_SetAttr(steps, n_sums, sums) < 0;
    if (!failed && told + count > prefix)
        failed = keep_sums(steps, sums, prefix * 12) < 0;
    failed = failed || note_durations(steps, numbers, count, summed) < 0 ||
             set_size(steps, n_micro_batches, micro + count) < 0 || keep_batch(steps, batch, count, recent) < 0 ||
             PyObject_SetAttr(steps, n_worker, worker) < 0 || PyObject_SetAttr(steps, n_last_step, last_step) < 0 ||
             PyObject_SetAttr(steps, n_last_end, PyTuple_GetItem(batch, END)) < 0 ||
             (epoch != Py_None && PyObject_SetAttr(steps, n_epoch, epoch) < 0);
    Py_XDECREF(last_step);
    Py_XDECREF(one);
    Py_XDECREF(last);
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

/* Whether a batch has the usual columns, all known. Numbers with signs are those of which some are not. */
static int is_usual(PyObject *batch, PyObject *usual) {
    Py_buffer view;
    if (PyTuple_GetItem(batch, COLUMNS) != usual)
        return 0;
    if (get_numbers(PyTuple_GetItem(batch, NUMBERS), &view) < 0) {
        PyErr_Clear();
        return 0;
    }
    Py_ssize_t count = PyLong_AsSsize_t(PyTuple_GetItem(batch, STEPS));
    int whole = count > 0 && view.len == (Py_ssize_t)sizeof(uint32_t) * USUAL_COLUMNS * count;
    PyBuffer_Release(&view);
    return whole;
}

/* The sums of batches, in the order of Sums in batches.py; None where one has not the usual columns. */
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
        if (!is_usual(batch, usual))
            return Py_NewRef(Py_None);
        Py_ssize_t count = PyLong_AsSsize_t(PyTuple_GetItem(batch, STEPS));
        if (add_columns(PyTuple_GetItem(batch, NUMBERS), count, sums) < 0)
            return NULL;
        steps += (uint64_t)count;
    }
    PyObject *found[12];
    for (int i = 0; i < 12; i++)
        found[i] = PyLong_FromUnsignedLongLong(SUMMED[i] < 0 ? steps : sums[SUMMED[i]]);
    return tuple_of(12, found);
}

/* Each batch to the steps of its rank, which are made where they are not there yet. */
static PyObject *add_batches(PyObject *module, PyObject *args) {
    PyObject *ranks, *told, *epoch, *make, *usual;
    Py_ssize_t prefix, recent;
    int summed;
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
        int failed;
        if (is_usual(batch, usual)) {
            failed = add_batch(steps, worker, batch, epoch, prefix, recent, summed) < 0;
        } else {
            PyObject *result = PyObject_CallMethodObjArgs(steps, n_add, batch, worker, epoch, summed ? Py_True : Py_False, NULL);
            failed = result == NULL;
            Py_XDECREF(result);
        }
        Py_DECREF(steps);
        if (failed)
            return NULL;
    }
    return Py_NewRef(Py_None);
}

/* Whether no batch begins before the end of what its rank has of the same worker. */
static PyObject *all_new(PyObject *module, PyObject *args) {
    PyObject *ranks, *told;
    int new = 1;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!O!", &PyDict_Type, &ranks, &PyList_Type, &told))
        return NULL;
    for (Py_ssize_t i = 0; new > 0 && i < PyList_Size(told); i++) {
        PyObject *rank, *worker, *batch, *steps;
        if (get_told(PyList_GetItem(told, i), &rank, &worker, &batch) < 0)
            return NULL;
        if ((steps = PyDict_GetItemWithError(ranks, rank)) == NULL)
            continue;
        PyObject *last = PyObject_GetAttr(steps, n_last_step), *known = PyObject_GetAttr(steps, n_worker);
        int old = last == NULL || known == NULL ? -1 : PyObject_RichCompareBool(PyTuple_GetItem(batch, FIRST_STEP), last, Py_LE);
        if (old > 0)
            old = PyObject_RichCompareBool(known, worker, Py_EQ);
        new = old < 0 ? -1 : !old;
        Py_XDECREF(known);
        Py_XDECREF(last);
    }
    return new < 0 || PyErr_Occurred() ? NULL : PyBool_FromLong(new);
}

/* Takes what was waited into the rows of ranks, from `begin` on, until a batch does not follow what is there: (its place, ready). */
static PyObject *arrive(PyObject *module, PyObject *args) {
    PyObject *ranks, *told, *lead, *usual;
    Py_ssize_t place, until, most, ready = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!O!nOOnn", &PyDict_Type, &ranks, &PyList_Type, &told, &place, &lead, &usual, &until, &most))
        return NULL;
    for (; place < PyList_Size(told); place++) {
        PyObject *rank, *worker, *batch;
        if (get_told(PyList_GetItem(told, place), &rank, &worker, &batch) < 0)
            return NULL;
        PyObject *arrival = PyDict_GetItemWithError(ranks, rank);
        int same = PyObject_RichCompareBool(rank, lead, Py_EQ);
        if (PyErr_Occurred())
            return NULL;
        if (arrival == NULL || same || !is_usual(batch, usual))
            break;
        PyObject *waits = PyObject_GetAttr(arrival, n_waits), *numbers = PyTuple_GetItem(batch, NUMBERS), *part = NULL, *joined;
        Py_ssize_t waiting = waits == NULL ? -1 : PySequence_Size(waits), first = get_size(arrival, n_first_step);
        Py_ssize_t count = PyLong_AsSsize_t(PyTuple_GetItem(batch, STEPS)), before = first + waiting;
        Py_ssize_t begin = PyLong_AsSsize_t(PyTuple_GetItem(batch, FIRST_STEP));
        int follows = begin == before && waiting + count <= most;
        if (!PyErr_Occurred() && follows)
            part = PySequence_GetSlice(numbers, EXPOSED * count, (EXPOSED + 1) * count);
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
        ready += before < until && until <= before + count;
    }
    return Py_BuildValue("nn", place, ready);
}

/* Adds the first `block` waits of a rank to `least` and gives their sum; -1 with or without an error set where it cannot. */
static int64_t add_waits(PyObject *waits, uint32_t *least, Py_ssize_t block) {
    Py_buffer view;
    int64_t sum = -1;
    if (get_numbers(waits, &view) < 0)
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

/* Takes the first `block` waits off a rank; whether it has as many more, -1 with an error set. */
static int next_block(PyObject *arrival, Py_ssize_t block) {
    PyObject *waits = PyObject_GetAttr(arrival, n_waits);
    Py_ssize_t first = get_size(arrival, n_first_step), left = -1;
    if (waits != NULL && !PyErr_Occurred() && PySequence_DelSlice(waits, 0, block) == 0 &&
        set_size(arrival, n_first_step, first + block) == 0)
        left = PySequence_Size(waits);
    Py_XDECREF(waits);
    return left < 0 ? -1 : left >= block;
}

/* (sum of each rank's waits, sum of the least waits of any, ranks that are ready again) of the next block, which is taken off;
   None, and nothing is changed, where some wait is not known. */
static PyObject *join_block(PyObject *module, PyObject *args) {
    PyObject *ranks, *rank, *arrival, *sums = NULL;
    Py_ssize_t block, place = 0, ready = 0, row = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!n", &PyDict_Type, &ranks, &block))
        return NULL;
    if (block < 1) {
        PyErr_SetString(PyExc_ValueError, "a block has steps");
        return NULL;
    }
    uint32_t *least = PyMem_Malloc((size_t)block * sizeof(uint32_t));
    if (least == NULL)
        return PyErr_NoMemory();
    memset(least, 0xff, (size_t)block * sizeof(uint32_t));
    sums = PyList_New(PyDict_Size(ranks));
    int failed = sums == NULL, unknown = 0;
    while (!failed && !unknown && PyDict_Next(ranks, &place, &rank, &arrival)) {
        PyObject *waits = PyObject_GetAttr(arrival, n_waits);
        int64_t sum = waits == NULL ? -1 : add_waits(waits, least, block);
        failed = waits == NULL;
        Py_XDECREF(waits);
        if (sum < 0) {
            unknown = 1;
        } else {
            PyObject *number = PyLong_FromLongLong(sum);
            failed = number == NULL || PyList_SetItem(sums, row++, number) < 0;
        }
    }
    if (!failed && unknown) {
        PyErr_Clear();
        Py_DECREF(sums);
        PyMem_Free(least);
        return Py_NewRef(Py_None);
    }
    for (place = 0; !failed && PyDict_Next(ranks, &place, &rank, &arrival);) {
        int again = next_block(arrival, block);
        failed = again < 0;
        ready += again > 0;
    }
    uint64_t transfer = 0;
    for (Py_ssize_t i = 0; i < block; i++)
        transfer += least[i];
    PyMem_Free(least);
    if (!failed)
        return Py_BuildValue("NKn", sums, (unsigned long long)transfer, ready);
    Py_XDECREF(sums);
    return NULL;
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
    {&n_count, "count"},
    {&n_room, "room"},
    {&n_settle, "settle"},
    {&n_micro_batches, "micro_batches"},
    {&n_summed_steps, "summed_steps"},
    {&n_batches, "batches"},
    {&n_kept_steps, "kept_steps"},
    {&n_checkpoints, "checkpoints"},
    {&n_frombytes, "frombytes"},
    {&n_thin, "thin"},
    {&n_append, "append"},
    {&n_popleft, "popleft"},
    {&n_worker, "worker"},
    {&n_last_step, "last_step"},
    {&n_last_end, "last_end"},
    {&n_epoch, "epoch"},
    {&n_add, "add"},
    {&n_extend, "extend"},
    {&n_waits, "waits"},
    {&n_first_step, "first_step"},
};

static PyMethodDef functions[] = {
    {"usual_told", usual_told, METH_VARARGS, "(rank, worker, Batch) of each worker of a table with the usual columns."},
    {"spread_sums", spread_sums, METH_VARARGS, "The usual columns of each worker's steps, of which only sums are known."},
    {"add_batches", add_batches, METH_VARARGS, "Each batch to the steps of its rank."},
    {"sums_of", sums_of, METH_VARARGS, "The sums of batches with the usual columns."},
    {"all_new", all_new, METH_VARARGS, "Whether no batch begins before the end of what its rank has."},
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
