/* The ops of graph_clocks.py in machine code: TensorFlow runs them as kernels of its own, without the interpreter.

   They have no outputs, so that TensorFlow makes no tensors for them, and what they read stays here until Python takes it.
   They are not called stateful, though they are: TensorFlow would put those that are in one row, with the script's own.
   TensorFlow's C API is found in the library that the training has loaded: no header of it is needed, and none of its versions. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct TF_Status TF_Status;
typedef struct TF_Tensor TF_Tensor;
typedef struct TF_Op TF_Op;         /* TF_OpDefinitionBuilder */
typedef struct TF_Kernel TF_Kernel; /* TF_KernelBuilder */
typedef struct TF_Made TF_Made;     /* TF_OpKernelConstruction */
typedef struct TF_Call TF_Call;     /* TF_OpKernelContext */
typedef struct TF_Shapes TF_Shapes; /* TF_ShapeInferenceContext */

static struct {
    TF_Status *(*NewStatus)(void);
    void (*DeleteStatus)(TF_Status *);
    int (*GetCode)(const TF_Status *);
    TF_Op *(*NewOpDefinitionBuilder)(const char *name);
    void (*OpDefinitionBuilderAddInput)(TF_Op *, const char *spec);
    void (*OpDefinitionBuilderAddAttr)(TF_Op *, const char *spec);
    void (*OpDefinitionBuilderSetShapeInferenceFunction)(TF_Op *, void (*)(TF_Shapes *, TF_Status *));
    void (*RegisterOpDefinition)(TF_Op *, TF_Status *);
    TF_Kernel *(*NewKernelBuilder)(const char *op, const char *device, void *(*create)(TF_Made *), void (*compute)(void *, TF_Call *),
                                   void (*destroy)(void *));
    void (*RegisterKernelBuilder)(const char *name, TF_Kernel *, TF_Status *);
    void (*OpKernelConstruction_GetAttrInt32)(TF_Made *, const char *name, int32_t *value, TF_Status *);
    void (*GetInput)(TF_Call *, int index, TF_Tensor **, TF_Status *);
    void *(*TensorData)(const TF_Tensor *);
    size_t (*TensorByteSize)(const TF_Tensor *);
    void (*DeleteTensor)(TF_Tensor *);
} tf;

static const struct {
    const char *name;
    void *at;
} functions_of_tf[] = {
#define FUNCTION(name) {"TF_" #name, &tf.name}
    FUNCTION(NewStatus),
    FUNCTION(DeleteStatus),
    FUNCTION(GetCode),
    FUNCTION(NewOpDefinitionBuilder),
    FUNCTION(OpDefinitionBuilderAddInput),
    FUNCTION(OpDefinitionBuilderAddAttr),
    FUNCTION(OpDefinitionBuilderSetShapeInferenceFunction),
    FUNCTION(RegisterOpDefinition),
    FUNCTION(NewKernelBuilder),
    FUNCTION(RegisterKernelBuilder),
    FUNCTION(OpKernelConstruction_GetAttrInt32),
    FUNCTION(GetInput),
    FUNCTION(TensorData),
    FUNCTION(TensorByteSize),
    FUNCTION(DeleteTensor),
};

/* ---- What was read ------------------------------------------------------------------------------------------------ */

/* Rows that wait to be taken, at most: Python takes them about once a second, or after 256 calls. What comes beyond is lost,
   and its steps say so. */
enum { MOST = 1 << 16 };

typedef struct {
    int64_t at_ns;
    int64_t value;
} Row;

static pthread_mutex_t taking = PTHREAD_MUTEX_INITIALIZER;
static Row batches[MOST], reductions[MOST]; /* when, samples; from, to */
static Py_ssize_t batch_count, reduction_count;

/* When the gradients of a place in a graph were ready last. */
enum { PLACES = 1 << 12 };
static _Atomic int64_t ready_ns[PLACES];

/* The clock of time.time(), which Python reads at a call's start. */
static int64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void add(Row *rows, Py_ssize_t *count, int64_t at_ns, int64_t value) {
    pthread_mutex_lock(&taking);
    if (*count < MOST)
        rows[(*count)++] = (Row){at_ns, value};
    pthread_mutex_unlock(&taking);
}

/* ---- The kernels -------------------------------------------------------------------------------------------------- */

static void *place_of(TF_Made *made) {
    int32_t place = 0;
    TF_Status *status = tf.NewStatus();
    tf.OpKernelConstruction_GetAttrInt32(made, "place", &place, status);
    tf.DeleteStatus(status);
    return &ready_ns[(uint32_t)place % PLACES];
}

static void gradients_ready(void *place, TF_Call *call) {
    (void)call;
    atomic_store_explicit((_Atomic int64_t *)place, now_ns(), memory_order_relaxed);
}

static void gradients_reduced(void *place, TF_Call *call) {
    (void)call;
    int64_t ready = atomic_load_explicit((_Atomic int64_t *)place, memory_order_relaxed);
    add(reductions, &reduction_count, ready, now_ns());
}

/* Its input is an int32 vector that begins with the number of samples. */
static void batch_there(void *kernel, TF_Call *call) {
    (void)kernel;
    TF_Tensor *shape = NULL;
    TF_Status *status = tf.NewStatus();
    int32_t samples = 0;
    tf.GetInput(call, 0, &shape, status);
    if (shape != NULL) {
        if (tf.TensorByteSize(shape) >= sizeof samples)
            memcpy(&samples, tf.TensorData(shape), sizeof samples);
        tf.DeleteTensor(shape);
    }
    tf.DeleteStatus(status);
    add(batches, &batch_count, now_ns(), samples);
}

static void destroy(void *kernel) { (void)kernel; }

static void no_outputs(TF_Shapes *shapes, TF_Status *status) {
    (void)shapes;
    (void)status;
}

static int add_op(const char *name, const char *input, const char *attribute, void *(*create)(TF_Made *),
                  void (*compute)(void *, TF_Call *)) {
    TF_Status *status = tf.NewStatus();
    TF_Op *op = tf.NewOpDefinitionBuilder(name);
    if (attribute != NULL)
        tf.OpDefinitionBuilderAddAttr(op, attribute);
    if (input != NULL)
        tf.OpDefinitionBuilderAddInput(op, input);
    tf.OpDefinitionBuilderSetShapeInferenceFunction(op, no_outputs);
    tf.RegisterOpDefinition(op, status);
    if (tf.GetCode(status) == 0)
        tf.RegisterKernelBuilder(name, tf.NewKernelBuilder(name, "CPU", create, compute, destroy), status);
    int added = tf.GetCode(status) == 0;
    tf.DeleteStatus(status);
    return added;
}

/* ---- The module --------------------------------------------------------------------------------------------------- */

static int found_tensorflow(void) {
    static const char *const names[] = {"libtensorflow_framework.so.2", "libtensorflow_framework.so.1"};
    void *library = NULL;
    for (size_t i = 0; library == NULL && i < sizeof names / sizeof names[0]; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_NOLOAD);
    for (size_t i = 0; library != NULL && i < sizeof functions_of_tf / sizeof functions_of_tf[0]; i++) {
        void *found = dlsym(library, functions_of_tf[i].name);
        if (found == NULL)
            return 0;
        memcpy(functions_of_tf[i].at, &found, sizeof found);
    }
    return library != NULL;
}

static PyObject *add_ops(PyObject *module, PyObject *none) {
    static int tried, added;
    (void)module, (void)none;
    /* TensorFlow ends a process that adds an op twice. */
    if (!tried) {
        tried = 1;
        added = found_tensorflow() && add_op("DistmonBatchThere", "shape: int32", NULL, NULL, batch_there) &&
                add_op("DistmonGradientsReady", NULL, "place: int", place_of, gradients_ready) &&
                add_op("DistmonGradientsReduced", NULL, "place: int", place_of, gradients_reduced);
    }
    return PyBool_FromLong(added);
}

/* Copies the rows and forgets them, so that no kernel waits while Python makes objects of them. */
static Py_ssize_t take(const Row *rows, Py_ssize_t *count, Row *copy, Py_ssize_t most) {
    pthread_mutex_lock(&taking);
    Py_ssize_t taken = *count;
    if (taken <= most) {
        memcpy(copy, rows, (size_t)taken * sizeof *copy);
        *count = 0;
    }
    pthread_mutex_unlock(&taking);
    return taken;
}

static PyObject *list_of(const Row *rows, Py_ssize_t count, int value_is_time) {
    PyObject *list = PyList_New(count);
    for (Py_ssize_t i = 0; list != NULL && i < count; i++) {
        double at = (double)rows[i].at_ns / 1e9;
        PyObject *row = value_is_time ? Py_BuildValue("(dd)", at, (double)rows[i].value / 1e9)
                                      : Py_BuildValue("(dL)", at, (long long)rows[i].value);
        if (row == NULL || PyList_SetItem(list, i, row) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *read_rows(const Row *rows, Py_ssize_t *count, int value_is_time) {
    enum { FEW = 512 };
    Row few[FEW];
    Py_ssize_t taken = take(rows, count, few, FEW);
    if (taken <= FEW)
        return list_of(few, taken, value_is_time);
    Row *copy = malloc(MOST * sizeof *copy);
    if (copy == NULL)
        return PyErr_NoMemory();
    PyObject *list = list_of(copy, take(rows, count, copy, MOST), value_is_time);
    free(copy);
    return list;
}

static PyObject *read_clocks(PyObject *module, PyObject *none) {
    (void)module, (void)none;
    PyObject *there = read_rows(batches, &batch_count, 0);
    PyObject *reduced = there != NULL ? read_rows(reductions, &reduction_count, 1) : NULL;
    if (reduced != NULL)
        return Py_BuildValue("(NN)", there, reduced);
    Py_XDECREF(there);
    return NULL;
}

static PyMethodDef functions[] = {
    {"add_ops", add_ops, METH_NOARGS, "add_ops(): make the ops known to the TensorFlow that is loaded; False if it cannot be."},
    {"read", read_clocks, METH_NOARGS, "read(): batches (when, samples) and reductions (from, to) since the last time."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_graph_clocks", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__graph_clocks(void) { return PyModule_Create(&definition); }
