/* Sums over packed columns of steps, in machine code: the same as columns.py, which serves where this was not built.

   A large job brings half a million numbers a second, and an integer object for each of them is what the fold then mostly costs.

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

static PyObject *column_sums(PyObject *module, PyObject *args) {
    PyObject *object;
    Py_ssize_t count;
    Py_buffer view;
    (void)module;
    if (!PyArg_ParseTuple(args, "On", &object, &count) || get_numbers(object, &view) < 0)
        return NULL;
    const uint32_t *numbers = view.buf;
    Py_ssize_t length = view.len / (Py_ssize_t)sizeof(uint32_t), columns = count > 0 ? length / count : 0;
    PyObject *sums = NULL;
    if (columns < 1 || columns * count != length) {
        PyErr_SetString(PyExc_ValueError, "columns of different lengths");
        goto done;
    }
    sums = PyTuple_New(columns - 1);
    for (Py_ssize_t column = 0; sums != NULL && column < columns - 1; column++) {
        uint64_t sum = 0;
        for (Py_ssize_t i = column * count; i < (column + 1) * count; i++)
            sum += numbers[i];
        PyObject *number = PyLong_FromUnsignedLongLong(sum);
        if (number == NULL || PyTuple_SetItem(sums, column, number) < 0)
            Py_CLEAR(sums);
    }
done:
    PyBuffer_Release(&view);
    return sums;
}

/* As Batch in batches.py has them, for steps of which all the usual columns are known; `numbers` are those of `part`. */
static PyObject *usual_batch(PyObject *part, const uint32_t *numbers, PyObject *first_step, Py_ssize_t count, double origin,
                             PyObject *columns) {
    uint64_t sums[6] = {0};
    for (Py_ssize_t i = 0; i < 6 * count; i++)
        sums[i / count] += numbers[i];
    const uint32_t *starts = numbers + 6 * count;
    double begin = origin + starts[0] / 1e9;
    double end = origin + ((uint64_t)starts[count - 1] + numbers[count - 1]) / 1e9;
    unsigned long long d = sums[0], a = sums[1], b = sums[2], c = sums[3], e = sums[4], samples = sums[5];
    return Py_BuildValue("OnddOO(nKKnKKKKnnnn)", first_step, count, begin, end, columns, part, count, d, samples, count, a, b, c,
                         e, count, count, count, count);
}

static PyObject *usual_batches(PyObject *module, PyObject *args) {
    PyObject *object, *first_steps, *counts, *columns, *found = NULL;
    double origin;
    Py_buffer view;
    (void)module;
    if (!PyArg_ParseTuple(args, "OdO!O!O", &object, &origin, &PyList_Type, &first_steps, &PyTuple_Type, &counts, &columns) ||
        get_numbers(object, &view) < 0)
        return NULL;
    Py_ssize_t workers = PyTuple_Size(counts), length = view.len / (Py_ssize_t)sizeof(uint32_t), place = 0;
    found = PyList_Size(first_steps) == workers ? PyList_New(workers) : NULL;
    if (found == NULL && !PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "lists of different lengths");
    for (Py_ssize_t i = 0; found != NULL && i < workers; i++) {
        Py_ssize_t count = PyLong_AsSsize_t(PyTuple_GetItem(counts, i));
        PyObject *part = NULL, *batch = NULL;
        if (count < 1 || count > (length - place) / 7) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "columns of different lengths");
        } else {
            part = PySequence_GetSlice(object, place, place + 7 * count);
        }
        if (part != NULL)
            batch = usual_batch(part, (const uint32_t *)view.buf + place, PyList_GetItem(first_steps, i), count, origin, columns);
        Py_XDECREF(part);
        place += 7 * count;
        if (batch == NULL || PyList_SetItem(found, i, batch) < 0)
            Py_CLEAR(found);
    }
    PyBuffer_Release(&view);
    return found;
}

/* Adds a part of a row; -1 with an error set. */
static int add_row(PyObject *object, uint64_t *sums, Py_ssize_t begin, Py_ssize_t length) {
    Py_buffer view;
    if (object == NULL || get_numbers(object, &view) < 0)
        return -1;
    const uint32_t *numbers = view.buf;
    int enough = view.len / (Py_ssize_t)sizeof(uint32_t) - begin >= length;
    for (Py_ssize_t i = 0; enough && i < length; i++)
        sums[i] += numbers[begin + i];
    PyBuffer_Release(&view);
    if (!enough)
        PyErr_SetString(PyExc_ValueError, "a row is shorter than what is added");
    return enough ? 0 : -1;
}

static PyObject *row_sums(PyObject *module, PyObject *args) {
    PyObject *rows, *found = NULL;
    Py_ssize_t begin, length;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!nn", &PyList_Type, &rows, &begin, &length))
        return NULL;
    if (begin < 0 || length < 0) {
        PyErr_SetString(PyExc_ValueError, "a part of a row begins before it, or has no length");
        return NULL;
    }
    uint64_t *sums = PyMem_Calloc(length ? (size_t)length : 1, sizeof(uint64_t));
    if (sums == NULL)
        return PyErr_NoMemory();
    for (Py_ssize_t row = 0; row < PyList_Size(rows); row++)
        if (add_row(PyList_GetItem(rows, row), sums, begin, length) < 0)
            goto done;
    found = PyList_New(length);
    for (Py_ssize_t i = 0; found != NULL && i < length; i++) {
        PyObject *number = PyLong_FromUnsignedLongLong(sums[i]);
        if (number == NULL || PyList_SetItem(found, i, number) < 0)
            Py_CLEAR(found);
    }
done:
    PyMem_Free(sums);
    return found;
}

/* One place of all tuples added up, as far as it holds small integers; 0 where it does not. */
static int small_sum_at(PyObject *tuples, Py_ssize_t place, long long *sum) {
    *sum = 0;
    for (Py_ssize_t i = 0; i < PyList_Size(tuples); i++) {
        PyObject *tuple = PyList_GetItem(tuples, i);
        if (!PyTuple_Check(tuple) || place >= PyTuple_Size(tuple) || !PyLong_Check(PyTuple_GetItem(tuple, place)))
            return 0;
        int overflow;
        long long number = PyLong_AsLongLongAndOverflow(PyTuple_GetItem(tuple, place), &overflow);
        if (overflow || __builtin_add_overflow(*sum, number, sum))
            return 0;
    }
    return 1;
}

/* The same of any numbers. */
static PyObject *sum_at(PyObject *tuples, Py_ssize_t place) {
    PyObject *sum = NULL;
    long long small;
    if (small_sum_at(tuples, place, &small))
        return PyLong_FromLongLong(small);
    for (Py_ssize_t i = 0; i < PyList_Size(tuples); i++) {
        PyObject *tuple = PyList_GetItem(tuples, i);
        PyObject *number = tuple != NULL && PyTuple_Check(tuple) ? PyTuple_GetItem(tuple, place) : NULL;
        PyObject *next = number == NULL ? NULL : sum == NULL ? Py_NewRef(number) : PyNumber_Add(sum, number);
        Py_XDECREF(sum);
        if (next == NULL) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_TypeError, "not a list of tuples");
            return NULL;
        }
        sum = next;
    }
    return sum;
}

static PyObject *tuple_sums(PyObject *module, PyObject *tuples) {
    (void)module;
    if (!PyList_Check(tuples) || PyList_Size(tuples) == 0 || !PyTuple_Check(PyList_GetItem(tuples, 0))) {
        PyErr_SetString(PyExc_TypeError, "not a list of tuples");
        return NULL;
    }
    Py_ssize_t length = PyTuple_Size(PyList_GetItem(tuples, 0));
    PyObject *found = length < 0 ? NULL : PyTuple_New(length);
    for (Py_ssize_t place = 0; found != NULL && place < length; place++) {
        PyObject *sum = sum_at(tuples, place);
        if (sum == NULL || PyTuple_SetItem(found, place, sum) < 0)
            Py_CLEAR(found);
    }
    return found;
}

static PyMethodDef functions[] = {
    {"column_sums", column_sums, METH_VARARGS, "The sum of each column of `count` numbers but the last."},
    {"row_sums", row_sums, METH_VARARGS, "The sums over rows of each of `length` numbers from `begin` on."},
    {"usual_batches", usual_batches, METH_VARARGS, "The fields of a batch of each worker of a table with the usual columns."},
    {"tuple_sums", tuple_sums, METH_O, "The sums of tuples, place by place."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", NULL, 0, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) { return PyModule_Create(&definition); }
