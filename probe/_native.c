/* What the probe does at every step, in machine code: the same as hot.py, which serves where this was not built. And how a
   ring is read, as in ring.py.

   A step's cost is mostly that of code and data which the training has driven out of the processor's caches since the last
   one, and a Python function brings along many times as much of both as the few instructions that are needed.

   Built once for all Pythons from 3.9 on (stable ABI), for the training's Python need not be distmon's. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>
#include <structmember.h>

#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Binds like a function: the interpreter then calls a method without making an object for it. Of the stable ABI since 3.8,
   but in its headers since 3.10 only. */
#ifndef Py_TPFLAGS_METHOD_DESCRIPTOR
#define Py_TPFLAGS_METHOD_DESCRIPTOR (1UL << 17)
#endif

/* Calls without a tuple and a dictionary made for their arguments: of the stable ABI since 3.12, a symbol of the interpreter
   since 3.11, and not there before. */
#ifndef Py_TPFLAGS_HAVE_VECTORCALL
#define Py_TPFLAGS_HAVE_VECTORCALL (1UL << 11)
#endif
typedef PyObject *(*Vectorcall)(PyObject *callable, PyObject *const *args, size_t count, PyObject *names);
extern PyObject *PyObject_Vectorcall(PyObject *callable, PyObject *const *args, size_t count, PyObject *names)
    __attribute__((weak));

enum { INPUT_WAIT, COMPUTE, EXPOSED, OPTIMIZER, GRAPH };

/* What `in_graph` says: hot.py. */
enum { NO_GRAPH, PLAIN };

/* Calls of a graph that wait for their times, at most: graph_times.py. */
enum { HELD = 256 };

/* Where a TimedCall keeps what else it needs. */
enum { NAMESPACE, NAME, UNHOOKED };
enum { CALLS, DUE, TRACED };
enum { STEP_RECORD = 1 };

/* ring.py's _STEP_SLOT. */
typedef struct {
    uint64_t sequence;
    int64_t check;
    uint16_t kind;
    uint16_t length;
    int64_t step;
    int32_t generation;
    int32_t epoch;
    int64_t start_ns;
    int64_t duration_ns;
    int64_t input_wait_ns;
    int64_t compute_ns;
    int64_t exposed_communication_ns;
    int64_t optimizer_ns;
    int32_t samples;
    uint16_t micro_batches;
} StepSlot;

enum { PAYLOAD_AT = 20, SLOT_END = offsetof(StepSlot, micro_batches) + sizeof(uint16_t) };

/* What every step runs lies side by side, in few pages; what it seldom runs lies elsewhere. */
#define HOT __attribute__((hot, aligned(64)))
#define COLD __attribute__((cold, noinline))
#define INLINE static inline __attribute__((always_inline))

static PyObject *method_type, *shape_name;

/* The C library's function only passes on to the kernel's, by way of more code and data that are out of the caches: half of what
   a clock reading costs in the midst of a training. */
static int (*read_clock)(clockid_t clock, struct timespec *time) = clock_gettime;

static void find_clock(void) {
    static const char *const names[] = {"__vdso_clock_gettime", "__kernel_clock_gettime"};
    void *library = dlopen("linux-vdso.so.1", RTLD_NOW | RTLD_NOLOAD);
    for (size_t i = 0; library != NULL && i < sizeof names / sizeof names[0]; i++) {
        void *found = dlsym(library, names[i]);
        if (found != NULL)
            memcpy(&read_clock, &found, sizeof found);
    }
}

INLINE int64_t clock_ns(clockid_t clock) {
    struct timespec time;
    read_clock(clock, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

INLINE int64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

/* PyThread_get_thread_ident without the calls that it takes, which lie elsewhere; whether it is the same is seen at import. */
INLINE unsigned long this_thread(void) {
#if defined(__x86_64__) && defined(__linux__)
    unsigned long pointer;
    __asm__("movq %%fs:0, %0" : "=r"(pointer));
    return pointer;
#else
    return PyThread_get_thread_ident();
#endif
}

/* ---- Slots: the records of a ring --------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *keep_alive;
    char *header;
    uint64_t next;
    long long header_size, head_at, capacity, record_size;
} Slots;

static int Slots_init(Slots *self, PyObject *args, PyObject *kwargs) {
    unsigned long long address;
    PyObject *keep_alive;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "OKLLLL", &keep_alive, &address, &self->header_size, &self->head_at, &self->capacity,
                          &self->record_size))
        return -1;
    if (self->capacity < 1 || self->record_size < (long long)sizeof(StepSlot)) {
        PyErr_SetString(PyExc_ValueError, "records are too small for a step");
        return -1;
    }
    Py_INCREF(keep_alive);
    self->keep_alive = keep_alive;
    self->header = (char *)(uintptr_t)address;
    return 0;
}

static void Slots_dealloc(Slots *self) {
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(self->keep_alive);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *Slots_next(Slots *self, PyObject *unused) {
    (void)unused;
    return PyLong_FromUnsignedLongLong(self->next++);
}

INLINE int64_t check_of(const StepSlot *slot) {
    return (int64_t)(slot->sequence + (uint64_t)slot->step + (uint64_t)slot->generation + (uint64_t)slot->epoch +
                     (uint64_t)slot->start_ns + (uint64_t)slot->duration_ns + (uint64_t)slot->input_wait_ns +
                     (uint64_t)slot->compute_ns + (uint64_t)slot->exposed_communication_ns +
                     (uint64_t)slot->optimizer_ns + (uint64_t)slot->samples + (uint64_t)slot->micro_batches);
}

/* The interpreter's lock is held, so no other thread takes the same number; the reader, a process of its own, believes only
   what the check confirms. */
INLINE void Slots_store(Slots *self, StepSlot *slot) {
    slot->sequence = self->next++;
    slot->kind = STEP_RECORD;
    slot->length = SLOT_END - PAYLOAD_AT;
    slot->check = check_of(slot);
    memcpy(self->header + self->header_size + slot->sequence % (uint64_t)self->capacity * (uint64_t)self->record_size, slot,
           SLOT_END);
    __atomic_store_n((uint64_t *)(self->header + self->head_at), slot->sequence + 1, __ATOMIC_RELEASE);
}

static PyMethodDef Slots_methods[] = {
    {"next", (PyCFunction)Slots_next, METH_NOARGS, "The sequence number of the next record."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot Slots_slots[] = {
    {Py_tp_doc, "Slots(keep_alive, address, header_size, head_at, capacity, record_size): records of a mapped ring."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_init, Slots_init},
    {Py_tp_dealloc, Slots_dealloc},
    {Py_tp_methods, Slots_methods},
    {0, NULL},
};

static PyType_Spec Slots_spec = {"_native.Slots", sizeof(Slots), 0, Py_TPFLAGS_DEFAULT, Slots_slots};

/* ---- Counters: the running step ----------------------------------------------------------------------------------- */

/* What one hook touches lies together. */
typedef struct {
    PyObject_HEAD
    unsigned long thread;
    char attention, in_step, manual, seen_all;
    PyObject *gpu;
    long long mark, compute, backwards;
    long long wait, batches, samples, batch_size, full_batches;
    unsigned long long feeding;
    long long exposed, optimizer, start, cut, step, generation, epoch;
    PyObject *slots;
    unsigned long long graph;
    long long in_graph, flush_at;
} Counters;

static void Counters_dealloc(Counters *self) {
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(self->gpu);
    Py_XDECREF(self->slots);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

#define NUMBER(name) {#name, T_LONGLONG, offsetof(Counters, name), 0, NULL}
#define FLAG(name) {#name, T_BOOL, offsetof(Counters, name), 0, NULL}

static PyMemberDef Counters_members[] = {
    {"thread", T_ULONG, offsetof(Counters, thread), 0, NULL},
    {"feeding", T_ULONGLONG, offsetof(Counters, feeding), 0, NULL},
    {"graph", T_ULONGLONG, offsetof(Counters, graph), 0, NULL},
    NUMBER(in_graph),
    NUMBER(flush_at),
    NUMBER(full_batches),
    NUMBER(batch_size),
    NUMBER(step),
    NUMBER(generation),
    NUMBER(epoch),
    NUMBER(start),
    NUMBER(mark),
    NUMBER(cut),
    NUMBER(wait),
    NUMBER(compute),
    NUMBER(exposed),
    NUMBER(optimizer),
    NUMBER(samples),
    NUMBER(batches),
    NUMBER(backwards),
    FLAG(attention),
    FLAG(in_step),
    FLAG(manual),
    FLAG(seen_all),
    {"gpu", T_OBJECT, offsetof(Counters, gpu), 0, NULL},
    {"slots", T_OBJECT, offsetof(Counters, slots), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot Counters_slots[] = {
    {Py_tp_doc, "What was counted of the running step, and how to go on; hot.py explains the fields."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_dealloc, Counters_dealloc},
    {Py_tp_members, Counters_members},
    {0, NULL},
};

static PyType_Spec Counters_spec = {"_native.Counters", sizeof(Counters), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                                    Counters_slots};

static PyObject *counters_type, *slots_type;

/* An error of the probe's own must not reach the script: report it as Python reports what nobody can catch, and time
   nothing any more. */
COLD static void give_up(Counters *self) {
    self->thread = 0;
    PyErr_WriteUnraisable((PyObject *)self);
}

COLD static void tell(Counters *self, PyObject *result) {
    if (result == NULL)
        give_up(self);
    else
        Py_DECREF(result);
}

COLD static void mark_on_gpu(Counters *self, int phase) { tell(self, PyObject_CallMethod(self->gpu, "mark", "i", phase)); }

INLINE void mark_gpu(Counters *self, int phase) {
    if (self->gpu != NULL && self->gpu != Py_None)
        mark_on_gpu(self, phase);
}

INLINE void begin_step(Counters *self, int64_t end) {
    self->step++;
    self->start = end;
    self->wait = self->compute = self->exposed = self->optimizer = self->cut = 0;
    self->samples = self->batches = self->backwards = 0;
}

/* Writes the step that ends at `end`, if it is a plain one: nothing about it needs more than its numbers. */
INLINE int end_plain_step(Counters *self, int64_t end) {
    StepSlot slot;
    if (self->attention || !self->seen_all || self->slots == NULL || Py_TYPE(self->slots) != (PyTypeObject *)slots_type ||
        self->samples < 0 || self->samples > INT32_MAX || self->batches > UINT16_MAX || self->epoch > INT32_MAX || self->epoch < INT32_MIN ||
        self->generation > INT32_MAX || (self->gpu != NULL && self->gpu != Py_None))
        return 0;
    slot.step = self->step;
    slot.generation = (int32_t)self->generation;
    slot.epoch = (int32_t)self->epoch;
    slot.duration_ns = end - self->start - self->cut;
    slot.start_ns = end - slot.duration_ns;
    slot.input_wait_ns = self->wait;
    slot.compute_ns = self->compute;
    slot.exposed_communication_ns = self->exposed;
    slot.optimizer_ns = self->optimizer;
    slot.samples = (int32_t)self->samples;
    slot.micro_batches = (uint16_t)self->batches;
    Slots_store((Slots *)self->slots, &slot);
    begin_step(self, end);
    return 1;
}

/* ---- TimedCall: a function of the framework, and what is counted around it ---------------------------------------- */

typedef struct {
    PyObject_HEAD
    int what;
    Vectorcall vectorcall;
    Counters *counters;
    PyObject *original, *helper, *hooked, *more[3];
    PyObject *dictionary;
} TimedCall;

/* What wrappers carry of the function that they wrap. */
static PyMemberDef TimedCall_members[] = {
    {"__dict__", T_OBJECT, offsetof(TimedCall, dictionary), READONLY, NULL},
    {"__dictoffset__", T_PYSSIZET, offsetof(TimedCall, dictionary), READONLY, NULL},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(TimedCall, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static Vectorcall in_row(int what);

static int TimedCall_init(TimedCall *self, PyObject *args, PyObject *kwargs) {
    PyObject *counters, *original, *helper = Py_None, *more[3] = {Py_None, Py_None, Py_None};
    int what, i;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "iOO|OOOO", &what, &counters, &original, &helper, more, more + 1, more + 2))
        return -1;
    if (what < INPUT_WAIT || what > GRAPH || PyObject_IsInstance(counters, counters_type) != 1 ||
        (what == EXPOSED && !PyDict_Check(more[NAMESPACE])) || (what == GRAPH && !PyList_Check(more[CALLS]))) {
        PyErr_SetString(PyExc_ValueError, "no such call is timed");
        return -1;
    }
    self->what = what;
    self->vectorcall = in_row(what);
    self->hooked = what == EXPOSED ? PyDict_GetItemWithError(more[NAMESPACE], more[NAME]) : Py_None;
    self->dictionary = PyDict_New();
    if (self->hooked == NULL || self->dictionary == NULL)
        return -1;
    self->counters = (Counters *)counters;
    self->original = original;
    self->helper = helper;
    Py_INCREF(counters);
    Py_INCREF(original);
    Py_INCREF(helper);
    Py_INCREF(self->hooked);
    for (i = 0; i < 3; i++) {
        self->more[i] = more[i];
        Py_INCREF(more[i]);
    }
    return 0;
}

static void TimedCall_dealloc(TimedCall *self) {
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF((PyObject *)self->counters);
    Py_XDECREF(self->original);
    Py_XDECREF(self->helper);
    Py_XDECREF(self->hooked);
    Py_XDECREF(self->more[0]);
    Py_XDECREF(self->more[1]);
    Py_XDECREF(self->more[2]);
    Py_XDECREF(self->dictionary);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *TimedCall_get(PyObject *self, PyObject *instance, PyObject *owner) {
    (void)owner;
    if (instance == NULL || instance == Py_None) {
        Py_INCREF(self);
        return self;
    }
    return PyObject_CallFunctionObjArgs(method_type, self, instance, NULL);
}

/* Samples in a batch: the first dimension of the first tensor in it. What the default collation makes of a data set of
   tuples is looked at here, anything else by count_samples. */
static long long samples_of(TimedCall *self, PyObject *batch) {
    PyObject *shape = NULL, *size = NULL;
    long long samples;
    if (PyList_CheckExact(batch) && PyList_Size(batch) > 0)
        shape = PyObject_GetAttr(PyList_GetItem(batch, 0), shape_name);
    if (shape != NULL && PyTuple_Check(shape) && PyTuple_Size(shape) > 0) {
        size = PyTuple_GetItem(shape, 0);
        Py_INCREF(size);
    }
    Py_XDECREF(shape);
    if (size == NULL) {
        PyErr_Clear();
        size = PyObject_CallFunctionObjArgs(self->helper, batch, NULL);
    }
    if (size == NULL) {
        give_up(self->counters);
        return 0;
    }
    samples = PyLong_AsLongLong(size);
    Py_DECREF(size);
    if (samples == -1 && PyErr_Occurred())
        give_up(self->counters);
    return samples;
}

/* As they came: as a tuple and a dictionary, or in a row where `args` is NULL. */
typedef struct {
    PyObject *const *row;
    size_t count;
    PyObject *names;
    PyObject *args, *kwargs;
} Arguments;

INLINE PyObject *call_of(PyObject *function, const Arguments *given) {
    if (given->args == NULL)
        return PyObject_Vectorcall(function, given->row, given->count, given->names);
    return PyObject_Call(function, given->args, given->kwargs);
}

INLINE PyObject *call(TimedCall *self, const Arguments *given) { return call_of(self->original, given); }

INLINE PyObject *first(const Arguments *given) {
    if (given->args == NULL)
        return (given->count & (SIZE_MAX >> 1)) > 0 ? given->row[0] : NULL;
    return PyTuple_Size(given->args) > 0 ? PyTuple_GetItem(given->args, 0) : NULL;
}

COLD static void batch_wanted(Counters *self, unsigned long long source) {
    tell(self, PyObject_CallMethod((PyObject *)self, "batch_wanted", "K", source));
}

COLD static void batches_ended(Counters *self, unsigned long long source) {
    PyObject *kind, *value, *traceback;
    PyErr_Fetch(&kind, &value, &traceback);
    tell(self, PyObject_CallMethod((PyObject *)self, "batches_ended", "K", source));
    PyErr_Restore(kind, value, traceback);
}

INLINE PyObject *timed_next(TimedCall *self, const Arguments *given) {
    Counters *counters = self->counters;
    PyObject *batch;
    unsigned long long source = (unsigned long long)(uintptr_t)first(given);
    int64_t now;
    counters->mark = now_ns();
    if (source != counters->feeding)
        batch_wanted(counters, source);
    batch = call(self, given);
    if (batch == NULL) {
        batches_ended(counters, source);
        return NULL;
    }
    now = now_ns();
    counters->wait += now - counters->mark;
    counters->mark = now;
    counters->batches++;
    if (counters->full_batches > 0) {
        counters->full_batches--;
        counters->samples += counters->batch_size;
    } else
        counters->samples += samples_of(self, batch);
    mark_gpu(counters, INPUT_WAIT);
    return batch;
}

COLD static void training_begins(Counters *self) {
    tell(self, PyObject_CallMethod((PyObject *)self, "training_begins", NULL));
}

INLINE PyObject *timed_backward(TimedCall *self, const Arguments *given) {
    Counters *counters = self->counters;
    PyObject *result = call(self, given);
    int64_t now;
    if (result == NULL)
        return NULL;
    now = now_ns();
    counters->compute += now - counters->mark;
    counters->mark = now;
    counters->backwards++;
    if (counters->attention)
        training_begins(counters);
    mark_gpu(counters, COMPUTE);
    return result;
}

INLINE void hook_again(TimedCall *self) {
    if (PyDict_SetItem(self->more[NAMESPACE], self->more[NAME], self->hooked) < 0)
        give_up(self->counters);
}

/* The optimizer waits once per tensor: time the whole, and let the single waits go past their hook. */
INLINE PyObject *timed_synchronize(TimedCall *self, const Arguments *given) {
    Counters *counters = self->counters;
    PyObject *result, *kind, *value, *traceback;
    int64_t now;
    if (!counters->in_step)
        counters->mark = now_ns();
    if (PyDict_SetItem(self->more[NAMESPACE], self->more[NAME], self->more[UNHOOKED]) < 0)
        give_up(counters);
    result = call(self, given);
    if (result == NULL) {
        PyErr_Fetch(&kind, &value, &traceback);
        hook_again(self);
        PyErr_Restore(kind, value, traceback);
        return NULL;
    }
    hook_again(self);
    now = now_ns();
    counters->exposed += now - counters->mark;
    counters->mark = now;
    mark_gpu(counters, EXPOSED);
    return result;
}

COLD static void end_step(Counters *self, int64_t end) {
    tell(self, PyObject_CallMethod((PyObject *)self, "end_step", "L", (long long)end));
}

INLINE PyObject *timed_step(TimedCall *self, const Arguments *given) {
    Counters *counters = self->counters;
    PyObject *result;
    int64_t now;
    counters->mark = now_ns();
    counters->in_step = 1;
    result = call(self, given);
    counters->in_step = 0;
    if (result == NULL)
        return NULL;
    now = now_ns();
    counters->optimizer += now - counters->mark;
    counters->mark = now;
    if (!counters->manual && !end_plain_step(counters, now))
        end_step(counters, now);
    return result;
}

/* Notes a call that is a step and nothing but a step; its times wait for what the graph says of them. */
INLINE void note_call(TimedCall *self, int64_t start, int64_t wall, int64_t end) {
    Counters *counters = self->counters;
    long long duration = end - counters->start - counters->cut;
    PyObject *row = Py_BuildValue("(LLLLLLLLLLLLL)", counters->step, counters->generation, counters->epoch,
                                  (long long)end - duration, duration, counters->wait, counters->compute, counters->exposed,
                                  counters->optimizer, counters->samples, counters->batches, (long long)wall,
                                  (long long)(end - start));
    if (row == NULL || PyList_Append(self->more[CALLS], row) < 0)
        give_up(counters);
    Py_XDECREF(row);
    counters->mark = end;
    begin_step(counters, end);
    if (end > counters->flush_at || PyList_Size(self->more[CALLS]) >= HELD)
        tell(counters, PyObject_CallFunctionObjArgs(self->more[DUE], NULL));
}

INLINE PyObject *timed_graph(TimedCall *self, const Arguments *given) {
    Counters *counters = self->counters;
    PyObject *result, *kind, *value, *traceback;
    int64_t start, wall, end;
    int traced;
    if (counters->thread != this_thread() || counters->graph != (unsigned long long)(uintptr_t)first(given) ||
        counters->attention || counters->in_graph != NO_GRAPH || counters->manual)
        return call_of(self->helper, given);
    counters->in_graph = PLAIN;
    start = now_ns();
    wall = clock_ns(CLOCK_REALTIME);
    result = call(self, given);
    end = now_ns();
    traced = counters->in_graph != PLAIN;
    counters->in_graph = NO_GRAPH;
    if (traced) {
        PyErr_Fetch(&kind, &value, &traceback);
        tell(counters, PyObject_CallFunction(self->more[TRACED], "LLLi", (long long)start, (long long)wall, (long long)end,
                                             result != NULL));
        PyErr_Restore(kind, value, traceback);
    } else if (result != NULL)
        note_call(self, start, wall, end);
    return result;
}

/* On another thread, in a forked child and inside what is no training: one comparison, and through. */
INLINE PyObject *timed(TimedCall *self, int what, const Arguments *given) {
    if (what == GRAPH)
        return timed_graph(self, given);
    if (self->counters->thread != this_thread())
        return call(self, given);
    switch (what) {
    case INPUT_WAIT:
        return timed_next(self, given);
    case COMPUTE:
        return timed_backward(self, given);
    case EXPOSED:
        return timed_synchronize(self, given);
    default:
        return timed_step(self, given);
    }
}

/* A function for each: it is code that has to come from memory at every step, so there is to be little of it. */
#define IN_ROW(name, what)                                                                                                   \
    HOT static PyObject *name(PyObject *self, PyObject *const *args, size_t count, PyObject *names) {                        \
        Arguments given = {args, count, names, NULL, NULL};                                                                  \
        return timed((TimedCall *)self, what, &given);                                                                       \
    }

IN_ROW(next_in_row, INPUT_WAIT)
IN_ROW(backward_in_row, COMPUTE)
IN_ROW(synchronize_in_row, EXPOSED)
IN_ROW(step_in_row, OPTIMIZER)
IN_ROW(graph_in_row, GRAPH)

static Vectorcall in_row(int what) {
    static const Vectorcall functions[] = {next_in_row, backward_in_row, synchronize_in_row, step_in_row, graph_in_row};
    return PyObject_Vectorcall != NULL ? functions[what] : NULL;
}

static PyObject *TimedCall_call(PyObject *self, PyObject *args, PyObject *kwargs) {
    Arguments given = {NULL, 0, NULL, args, kwargs};
    return timed((TimedCall *)self, ((TimedCall *)self)->what, &given);
}

static PyType_Slot TimedCall_slots[] = {
    {Py_tp_doc, "TimedCall(phase, counters, original, ...): calls original and counts its time; binds like a function."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_init, TimedCall_init},
    {Py_tp_dealloc, TimedCall_dealloc},
    {Py_tp_call, TimedCall_call},
    {Py_tp_descr_get, TimedCall_get},
    {Py_tp_members, TimedCall_members},
    {0, NULL},
};

static PyType_Spec TimedCall_spec = {"_native.TimedCall", sizeof(TimedCall), 0,
                                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_HAVE_VECTORCALL, TimedCall_slots};

/* ---- Reading ------------------------------------------------------------------------------------------------------ */

/* By the place of a step's number in ring.py's Step. */
static int64_t number_of(const StepSlot *slot, int column) {
    switch (column) {
    case 0:
        return slot->step;
    case 1:
        return slot->generation;
    case 2:
        return slot->epoch;
    case 9:
        return slot->samples;
    case 10:
        return slot->micro_batches;
    default:
        return (&slot->start_ns)[column - 3];
    }
}

static PyObject *step_columns(PyObject *module, PyObject *args) {
    enum { COLUMNS = 11 };
    const char *copied;
    Py_ssize_t size, count, row, column;
    long long record_size;
    unsigned long long first_sequence;
    StepSlot slot;
    PyObject *columns;
    (void)module;
    if (!PyArg_ParseTuple(args, "y#LK", &copied, &size, &record_size, &first_sequence))
        return NULL;
    count = record_size >= SLOT_END ? size / record_size : 0;
    for (row = 0; row < count; row++) {
        memcpy(&slot, copied + row * record_size, SLOT_END);
        if (slot.sequence != first_sequence + (unsigned long long)row || slot.kind != STEP_RECORD ||
            slot.length != SLOT_END - PAYLOAD_AT || slot.check != check_of(&slot))
            break;
    }
    if (count == 0 || row < count)
        Py_RETURN_NONE;
    columns = PyTuple_New(COLUMNS);
    for (column = 0; columns != NULL && column < COLUMNS; column++) {
        PyObject *numbers = PyTuple_New(count), *number;
        for (row = 0; numbers != NULL && row < count; row++) {
            memcpy(&slot, copied + row * record_size, SLOT_END);
            number = PyLong_FromLongLong(number_of(&slot, (int)column));
            if (number == NULL || PyTuple_SetItem(numbers, row, number) < 0)
                Py_CLEAR(numbers);
        }
        if (numbers == NULL || PyTuple_SetItem(columns, column, numbers) < 0)
            Py_CLEAR(columns);
    }
    return columns;
}

/* A column of a table: its numbers as they are, none of them where `skipped` stands for each. Gives the end of what is written,
   NULL where a number does not fit, or some are skipped. */
static uint32_t *pack_column(uint32_t *out, const char *slots, Py_ssize_t size, Py_ssize_t count, int column, int64_t skipped,
                             int64_t origin) {
    Py_ssize_t row, left_out = 0;
    for (row = 0; row < count; row++) {
        StepSlot slot;
        int64_t number;
        memcpy(&slot, slots + row * size, SLOT_END);
        number = (int64_t)((uint64_t)number_of(&slot, column) - (uint64_t)origin);
        left_out += number == skipped;
        if (number != (int64_t)(uint32_t)number && number != skipped)
            return NULL;
        out[row] = (uint32_t)number;
    }
    return left_out == 0 ? out + count : left_out == count ? out : NULL;
}

/* What the steps of a table have in common, and where they begin and end. */
typedef struct {
    StepSlot first;
    int64_t end_ns;
    int columns;
} TableHead;

/* The columns of ring.py's Table, at `numbers`, and what else is in it; their end, or NULL where the slots cannot be one. */
static uint32_t *pack_table(TableHead *head, uint32_t *numbers, const char *slots, Py_ssize_t size, Py_ssize_t count,
                            uint64_t sequence) {
    /* Duration, phases, samples, batches, starts, and what says nothing: UNSEEN, a single batch. */
    enum { ALWAYS = INT32_MIN };
    static const struct {
        int column, skipped;
    } columns[] = {{4, ALWAYS}, {5, -1}, {6, -1}, {7, -1}, {8, -1}, {9, -1}, {10, 1}, {3, ALWAYS}};
    enum { COLUMNS = sizeof columns / sizeof columns[0] };
    StepSlot slot;
    uint32_t *end = numbers;
    memcpy(&slot, slots, SLOT_END);
    head->first = slot;
    for (Py_ssize_t row = 0; row < count; row++) {
        memcpy(&slot, slots + row * size, SLOT_END);
        if (slot.sequence != sequence + (uint64_t)row || slot.kind != STEP_RECORD || slot.length != SLOT_END - PAYLOAD_AT ||
            slot.check != check_of(&slot) || (uint64_t)slot.step != (uint64_t)head->first.step + (uint64_t)row ||
            slot.generation != head->first.generation || slot.epoch != head->first.epoch)
            return NULL;
    }
    head->end_ns = (int64_t)((uint64_t)slot.start_ns + (uint64_t)slot.duration_ns);
    head->columns = 0;
    for (int i = 0; i < COLUMNS; i++) {
        uint32_t *begin = end;
        int64_t origin = i == COLUMNS - 1 ? head->first.start_ns : 0;
        end = pack_column(begin, slots, size, count, columns[i].column, columns[i].skipped, origin);
        if (end == NULL)
            return NULL;
        head->columns |= (end > begin) << i;
    }
    return end;
}

/* As ring.py packs it. `memory` is where the file is mapped, 0 where it is not. */
typedef struct {
    int64_t descriptor, header_size, head_at, capacity, record_size, memory;
    uint64_t cursor;
} Ring;

/* Where a copy out of a mapped ring goes on when the file has become shorter meanwhile, which the kernel tells by a signal. */
static _Thread_local sigjmp_buf cut_short;
static _Thread_local volatile sig_atomic_t copying;
static struct sigaction handled_before;

static void on_bus_error(int number, siginfo_t *info, void *context) {
    (void)context;
    if (copying)
        siglongjmp(cut_short, 1);
    (void)info;
    /* Not of ours: it comes again at once, and is met as it would have been. */
    sigaction(number, &handled_before, NULL);
}

/* Copies so many bytes of the file; whether they were there. What is mapped costs no call of the kernel, and what such a call touches of
   every file has left the caches of an agent that slept for a second. */
static int copy_from(const Ring *ring, void *into, size_t size, int64_t at) {
    if (ring->memory == 0)
        return pread((int)ring->descriptor, into, size, (off_t)at) == (ssize_t)size;
    if (sigsetjmp(cut_short, 0) != 0) {
        copying = 0;
        return 0;
    }
    copying = 1;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    memcpy(into, (const char *)(uintptr_t)ring->memory + at, size);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    copying = 0;
    return 1;
}

/* How many records were ever written, and when the writer closed the ring. What was read before is not read after, nor the reverse. */
static int read_ends(const Ring *ring, uint64_t ends[2]) {
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    int read = copy_from(ring, ends, 2 * sizeof ends[0], ring->head_at) ? 0 : -1;
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return read;
}

/* Whether the slots of `count` records from the cursor on were read as the writer left them. */
static int copy_slots(char *copied, const Ring *ring, uint64_t count) {
    enum { FAR = 1 << 16 };
    uint64_t capacity = (uint64_t)ring->capacity, size = (uint64_t)ring->record_size, begin = ring->cursor % capacity;
    uint64_t tail = begin + count > capacity ? capacity - begin : count;
    uint64_t ends[2];
    if (!copy_from(ring, copied, tail * size, ring->header_size + (int64_t)(begin * size)))
        return 0;
    if (tail < count && !copy_from(ring, copied + tail * size, (count - tail) * size, ring->header_size))
        return 0;
    /* What was read long ago need not count as this process's memory. */
    if (ring->memory != 0 && begin * size / FAR != (begin + count) * size / FAR)
        madvise((void *)(uintptr_t)ring->memory, (size_t)(ring->header_size + (int64_t)(capacity * size)), MADV_DONTNEED);
    /* The slot of record `head` may already be in the writer's hands, and with it the one a lap before. */
    return read_ends(ring, ends) == 0 && ends[0] < ring->cursor + capacity;
}

/* For reading alone: the address, 0 where that cannot be. What comes after the header is a mapping of its own, or the kernel would map
   some of it wherever the header is looked at. */
static PyObject *map_ring(PyObject *module, PyObject *args) {
    static int handles;
    int descriptor;
    Py_ssize_t size, header_size;
    (void)module;
    if (!PyArg_ParseTuple(args, "inn", &descriptor, &size, &header_size))
        return NULL;
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_NODEFER};
    if (!handles && sigaction(SIGBUS, &action, &handled_before) == 0)
        handles = 1;
    void *memory = handles && size > header_size ? mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, descriptor, 0) : MAP_FAILED;
    if (memory != MAP_FAILED)
        madvise((char *)memory + header_size, (size_t)(size - header_size), MADV_RANDOM);
    return PyLong_FromLongLong(memory == MAP_FAILED ? 0 : (long long)(uintptr_t)memory);
}

static PyObject *unmap_ring(PyObject *module, PyObject *args) {
    long long memory;
    Py_ssize_t size;
    (void)module;
    if (!PyArg_ParseTuple(args, "Ln", &memory, &size))
        return NULL;
    munmap((void *)(uintptr_t)memory, (size_t)size);
    Py_RETURN_NONE;
}

/* How many records are new, where a table could hold them; -1 otherwise. */
static Py_ssize_t count_new(const Ring *ring, uint64_t most) {
    enum { MOST_STEPS = 65536, MOST_BYTES = 65536 };
    uint64_t ends[2], count;
    if (ring->capacity < 1 || ring->record_size < SLOT_END || ring->record_size > MOST_BYTES || read_ends(ring, ends) < 0 ||
        ends[1] != 0 || ends[0] < ring->cursor)
        return -1;
    count = ends[0] - ring->cursor;
    return count > most || count > MOST_STEPS || count > (uint64_t)ring->capacity ? -1 : (Py_ssize_t)count;
}

enum { MOST_COLUMNS = 8, MOST_RINGS = 256 };

static PyObject *read_table(PyObject *module, PyObject *args) {
    Ring ring;
    const char *packed;
    Py_ssize_t length;
    unsigned long long most;
    PyObject *table = NULL;
    TableHead head;
    (void)module;
    if (!PyArg_ParseTuple(args, "y#K", &packed, &length, &most))
        return NULL;
    if (length != sizeof ring)
        Py_RETURN_NONE;
    memcpy(&ring, packed, sizeof ring);
    Py_ssize_t count = count_new(&ring, most);
    if (count < 0)
        Py_RETURN_NONE;
    if (count == 0)
        return PyTuple_New(0);
    uint32_t *numbers = PyMem_Malloc((size_t)count * (MOST_COLUMNS * sizeof *numbers + (size_t)ring.record_size)), *end = NULL;
    if (numbers == NULL)
        return PyErr_NoMemory();
    char *slots = (char *)(numbers + MOST_COLUMNS * count);
    if (copy_slots(slots, &ring, (uint64_t)count))
        end = pack_table(&head, numbers, slots, ring.record_size, count, ring.cursor);
    if (end != NULL)
        table = Py_BuildValue("(LiiLLiny#)", (long long)head.first.step, (int)head.first.generation, (int)head.first.epoch,
                              (long long)head.first.start_ns, (long long)head.end_ns, head.columns, count, (const char *)numbers,
                              (Py_ssize_t)((char *)end - (char *)numbers));
    PyMem_Free(numbers);
    if (table == NULL && !PyErr_Occurred())
        Py_RETURN_NONE;
    return table;
}

/* Packs what is new in each ring behind one another. The end of it; NULL where one of them has nothing, or cannot be packed, or
   they do not go together. */
static uint32_t *pack_tables(TableHead *heads, const Py_ssize_t *counts, uint32_t *numbers, char *slots, const Ring *rings,
                             Py_ssize_t size) {
    uint32_t *end = numbers;
    for (Py_ssize_t i = 0; i < size; i++) {
        if (!copy_slots(slots, &rings[i], (uint64_t)counts[i]))
            return NULL;
        end = pack_table(&heads[i], end, slots, rings[i].record_size, counts[i], rings[i].cursor);
        if (end == NULL || heads[i].columns != heads[0].columns || heads[i].first.generation != heads[0].first.generation ||
            heads[i].first.epoch != heads[0].first.epoch)
            return NULL;
    }
    return end;
}

/* Lets the starts of all count from the first one of all; 0 where some then do not fit. */
static int count_from_first(const TableHead *heads, const Py_ssize_t *counts, uint32_t *numbers, Py_ssize_t size) {
    int64_t origin = heads[0].first.start_ns;
    int width = 0;
    for (Py_ssize_t i = 1; i < size; i++)
        origin = heads[i].first.start_ns < origin ? heads[i].first.start_ns : origin;
    for (int bits = heads[0].columns; bits != 0; bits &= bits - 1)
        width++;
    for (Py_ssize_t i = 0; i < size; i++) {
        int64_t later = heads[i].first.start_ns - origin;
        if (later > UINT32_MAX || heads[i].end_ns - origin > UINT32_MAX)
            return 0;
        numbers += (width - 1) * counts[i];
        for (Py_ssize_t row = 0; row < counts[i]; row++)
            *numbers++ += (uint32_t)later;
    }
    return 1;
}

/* As ring.py's NodeTable. */
static PyObject *node_table_of(const Ring *rings, const TableHead *heads, const Py_ssize_t *counts, Py_ssize_t size,
                               const uint32_t *numbers, const uint32_t *end) {
    PyObject *first_steps = PyList_New(size), *steps = PyList_New(size);
    int64_t origin = heads[0].first.start_ns, ends[MOST_RINGS];
    uint64_t cursors[MOST_RINGS];
    for (Py_ssize_t i = 0; first_steps != NULL && steps != NULL && i < size; i++) {
        origin = heads[i].first.start_ns < origin ? heads[i].first.start_ns : origin;
        ends[i] = heads[i].end_ns;
        cursors[i] = rings[i].cursor + (uint64_t)counts[i];
        if (PyList_SetItem(first_steps, i, PyLong_FromLongLong(heads[i].first.step)) < 0 ||
            PyList_SetItem(steps, i, PyLong_FromSsize_t(counts[i])) < 0)
            Py_CLEAR(steps);
    }
    if (first_steps == NULL || steps == NULL || PyErr_Occurred()) {
        Py_XDECREF(first_steps);
        Py_XDECREF(steps);
        return NULL;
    }
    return Py_BuildValue("(iiLiNNy#y#y#)", (int)heads[0].first.generation, (int)heads[0].first.epoch, (long long)origin,
                         heads[0].columns, first_steps, steps, (const char *)numbers,
                         (Py_ssize_t)((const char *)end - (const char *)numbers), (const char *)cursors,
                         size * (Py_ssize_t)sizeof cursors[0], (const char *)ends, size * (Py_ssize_t)sizeof ends[0]);
}

/* NULL without an error where they do not go together. */
static PyObject *read_node(const Ring *rings, const Py_ssize_t *counts, Py_ssize_t size, uint32_t *numbers, char *slots) {
    TableHead heads[MOST_RINGS];
    heads[0] = (TableHead){0};
    uint32_t *end = pack_tables(heads, counts, numbers, slots, rings, size);
    if (end == NULL || !count_from_first(heads, counts, numbers, size))
        return NULL;
    return node_table_of(rings, heads, counts, size, numbers, end);
}

static PyObject *read_tables(PyObject *module, PyObject *args) {
    Ring rings[MOST_RINGS];
    Py_ssize_t counts[MOST_RINGS], places_length, length, total = 0, largest = 0;
    const char *places, *cursors;
    unsigned long long most;
    (void)module;
    if (!PyArg_ParseTuple(args, "y#y#K", &places, &places_length, &cursors, &length, &most))
        return NULL;
    Py_ssize_t size = length / (Py_ssize_t)sizeof rings[0].cursor, place = offsetof(Ring, cursor);
    if (size < 1 || size > MOST_RINGS || places_length != size * place)
        Py_RETURN_NONE;
    for (Py_ssize_t i = 0; i < size; i++) {
        memcpy(&rings[i], places + i * place, (size_t)place);
        memcpy(&rings[i].cursor, cursors + i * (Py_ssize_t)sizeof rings[0].cursor, sizeof rings[0].cursor);
        counts[i] = count_new(&rings[i], most);
        total += counts[i];
        if (counts[i] < 1 || (uint64_t)total > most)
            Py_RETURN_NONE;
        largest = counts[i] * rings[i].record_size > largest ? counts[i] * rings[i].record_size : largest;
    }
    uint32_t *numbers = PyMem_Malloc((size_t)total * MOST_COLUMNS * sizeof *numbers + (size_t)largest);
    if (numbers == NULL)
        return PyErr_NoMemory();
    PyObject *table = read_node(rings, counts, size, numbers, (char *)(numbers + MOST_COLUMNS * total));
    PyMem_Free(numbers);
    if (table == NULL && !PyErr_Occurred())
        Py_RETURN_NONE;
    return table;
}

static PyMethodDef functions[] = {
    {"read_table", read_table, METH_VARARGS, "read_table(ring, most): new steps of a ring; see ring.py."},
    {"read_tables", read_tables, METH_VARARGS, "read_tables(places, cursors, most): new steps of several rings, together; see ring.py."},
    {"map_ring", map_ring, METH_VARARGS, "map_ring(descriptor, size, header_size): where it is mapped, 0 where it cannot be."},
    {"unmap_ring", unmap_ring, METH_VARARGS, "unmap_ring(memory, size): the reverse."},
    {"step_columns", step_columns, METH_VARARGS,
     "step_columns(copied, record_size, first_sequence): the numbers of whole steps, by column; None if other records are among them."},
    {NULL, NULL, 0, NULL},
};

/* ---- The module --------------------------------------------------------------------------------------------------- */

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) {
    find_clock();
    if (this_thread() != PyThread_get_thread_ident()) {
        PyErr_SetString(PyExc_ImportError, "threads of this system are not known by their pointers");
        return NULL;
    }
    PyObject *module = PyModule_Create(&definition), *types = PyImport_ImportModule("types");
    PyObject *timed_type = PyType_FromSpec(&TimedCall_spec);
    counters_type = PyType_FromSpec(&Counters_spec);
    slots_type = PyType_FromSpec(&Slots_spec);
    shape_name = PyUnicode_InternFromString("shape");
    method_type = types != NULL ? PyObject_GetAttrString(types, "MethodType") : NULL;
    Py_XDECREF(types);
    if (module == NULL || counters_type == NULL || timed_type == NULL || slots_type == NULL || shape_name == NULL ||
        method_type == NULL || PyModule_AddObject(module, "Counters", counters_type) < 0 ||
        PyModule_AddObject(module, "TimedCall", timed_type) < 0 || PyModule_AddObject(module, "Slots", slots_type) < 0 ||
        PyModule_AddIntConstant(module, "STEP_SLOT_SIZE", SLOT_END) < 0)
        return NULL;
    return module;
}
