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

/* Adds `length` numbers to those of an array of 64-bit integers from `first` on; -1 with an error set, and nothing is added. */
static int add_at(PyObject *object, Py_ssize_t first, const uint64_t *numbers, Py_ssize_t length) {
    Py_buffer view;
    if (PyObject_GetBuffer(object, &view, PyBUF_CONTIG | PyBUF_FORMAT) < 0)
        return -1;
    int fits = view.itemsize == 8 && strcmp(view.format, "q") == 0 && first >= 0 && first + length <= view.len / 8;
    if (!fits)
        PyErr_SetString(PyExc_ValueError, "not an array of 64-bit integers with room for the sums");
    int64_t *into = (int64_t *)view.buf + first;
    for (Py_ssize_t i = 0; fits && i < length; i++) {
        fits = numbers[i] <= INT64_MAX && into[i] <= INT64_MAX - (int64_t)numbers[i];
        if (!fits)
            PyErr_SetString(PyExc_OverflowError, "a sum is too large");
    }
    for (Py_ssize_t i = 0; fits && i < length; i++)
        into[i] += (int64_t)numbers[i];
    PyBuffer_Release(&view);
    return fits ? 0 : -1;
}

enum { DURATIONS = 0, SAMPLES = 5 };
enum { NUMBERS = 5 };

/* Adds the durations and the samples of batches with the usual columns, and their number, to three arrays from `first` on. */
static PyObject *add_table(PyObject *module, PyObject *args) {
    PyObject *durations, *samples, *reports, *batches;
    Py_ssize_t first, count;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOOnO!n", &durations, &samples, &reports, &first, &PyList_Type, &batches, &count))
        return NULL;
    if (count < 1)
        return PyErr_Format(PyExc_ValueError, "batches without steps");
    uint64_t *sums = PyMem_Calloc(3 * (size_t)count, sizeof(uint64_t));
    if (sums == NULL)
        return PyErr_NoMemory();
    int failed = 0;
    for (Py_ssize_t row = 0; !failed && row < PyList_Size(batches); row++) {
        PyObject *numbers = PyTuple_GetItem(PyList_GetItem(batches, row), NUMBERS);
        failed = add_row(numbers, sums, DURATIONS * count, count) < 0 || add_row(numbers, sums + count, SAMPLES * count, count) < 0;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        sums[2 * count + i] = (uint64_t)PyList_Size(batches);
    failed = failed || add_at(durations, first, sums, count) < 0 || add_at(samples, first, sums + count, count) < 0 ||
             add_at(reports, first, sums + 2 * count, count) < 0;
    PyMem_Free(sums);
    return failed ? NULL : Py_NewRef(Py_None);
}

/* Rows from `first` on, of as many cells as there are amounts: cell[c] of row i += amounts[c] * weights[i] */
static PyObject *spread(PyObject *module, PyObject *args) {
    PyObject *cells, *amounts, *weights;
    Py_ssize_t first;
    Py_buffer view;
    (void)module;
    if (!PyArg_ParseTuple(args, "OnO!O!", &cells, &first, &PyTuple_Type, &amounts, &PyTuple_Type, &weights) ||
        PyObject_GetBuffer(cells, &view, PyBUF_CONTIG | PyBUF_FORMAT) < 0)
        return NULL;
    Py_ssize_t wide = PyTuple_Size(amounts), rows = PyTuple_Size(weights);
    int fits = view.itemsize == 8 && strcmp(view.format, "d") == 0 && first >= 0 && (first + rows) * wide <= view.len / 8;
    if (!fits)
        PyErr_SetString(PyExc_ValueError, "not an array of doubles with room for the amounts");
    double *cell = (double *)view.buf + first * wide;
    for (Py_ssize_t row = 0; fits && row < rows; row++) {
        double weight = PyFloat_AsDouble(PyTuple_GetItem(weights, row));
        for (Py_ssize_t column = 0; column < wide; column++)
            *cell++ += PyFloat_AsDouble(PyTuple_GetItem(amounts, column)) * weight;
    }
    PyBuffer_Release(&view);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
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
    {"add_table", add_table, METH_VARARGS, "Adds durations, samples and number of batches to three arrays."},
    {"spread", spread, METH_VARARGS, "Adds amounts to rows of cells, by the rows' weights."},
    {"tuple_sums", tuple_sums, METH_O, "The sums of tuples, place by place."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", NULL, 0, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) { return PyModule_Create(&definition); }
