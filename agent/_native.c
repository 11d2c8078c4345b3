/* What the agent reads at every sample, in machine code: the same as the sensors' own Python, which serves where this was not built.

   The agent sleeps for a second, and then most of what it costs is code and data that it touches: an object for each column of
   each file, and the interpreter around them.

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
    while (at < end && strncmp(at, "intr", 4) != 0) {
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
static PyObject *busy_percent(const Ticks *before, const Ticks *after) {
    int64_t idle = after->idle - before->idle, total = after->total - before->total;
    if (before->idle == ABSENT || after->idle == ABSENT || total <= 0)
        Py_RETURN_NONE;
    if (idle < 0 || idle > total)
        return PyFloat_FromDouble(idle < 0 ? 100.0 : 0.0);
    return PyFloat_FromDouble((double)((20000 * (total - idle) + total) / (2 * total)) / 100.0);
}

static PyObject *core_usage(PyObject *module, PyObject *args) {
    const char *text, *before_bytes;
    Py_ssize_t size, before_size;
    Ticks absent = {ABSENT, 0};
    (void)module;
    if (!PyArg_ParseTuple(args, "y#y#", &text, &size, &before_bytes, &before_size))
        return NULL;
    Ticks *found = PyMem_Malloc(2 * MOST_CORES * sizeof *found), *before = found + MOST_CORES;
    if (found == NULL)
        return PyErr_NoMemory();
    Py_ssize_t places = parse_cores(text, text + size, found), known = before_size / (Py_ssize_t)sizeof *found;
    PyObject *usage = NULL, *all = NULL, *cores = NULL;
    if (places < 0 || known > MOST_CORES) {
        usage = Py_NewRef(Py_None);
        goto done;
    }
    memcpy(before, before_bytes, (size_t)known * sizeof *found);
    all = busy_percent(known > 0 ? &before[0] : &absent, places > 0 ? &found[0] : &absent);
    cores = PyList_New(places > 0 ? places - 1 : 0);
    for (Py_ssize_t place = 1; cores != NULL && place < places; place++) {
        PyObject *percent = busy_percent(place < known ? &before[place] : &absent, &found[place]);
        if (percent == NULL || PyList_SetItem(cores, place - 1, percent) < 0)
            Py_CLEAR(cores);
    }
    if (all != NULL && cores != NULL)
        usage = Py_BuildValue("(y#OO)", (const char *)found, places * (Py_ssize_t)sizeof *found, all, cores);
done:
    Py_XDECREF(all);
    Py_XDECREF(cores);
    PyMem_Free(found);
    return usage;
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

static PyObject *interface_counts(PyObject *module, PyObject *args) {
    const char *at;
    Py_ssize_t size;
    (void)module;
    if (!PyArg_ParseTuple(args, "y#", &at, &size))
        return NULL;
    PyObject *counts = PyDict_New();
    for (const char *end = at + size; counts != NULL && at < end; at = end_of_line(at, end) + 1) {
        const char *line_end = end_of_line(at, end), *colon = line_end;
        int64_t received, sent;
        while (colon > at && colon[-1] != ':')
            colon--;
        int is_line = colon - at > 1 ? traffic_of(colon, line_end, &received, &sent) : 0;
        if (is_line == 0)
            continue;
        const char *name = skip_spaces(at, colon - 1), *name_end = colon - 1;
        while (name_end > name && is_space(name_end[-1]))
            name_end--;
        PyObject *key = is_line < 0 ? NULL : PyUnicode_DecodeUTF8(name, name_end - name, "replace");
        PyObject *pair = key == NULL ? NULL : Py_BuildValue("(LL)", (long long)received, (long long)sent);
        if (pair == NULL || PyDict_SetItem(counts, key, pair) < 0)
            Py_CLEAR(counts);
        Py_XDECREF(key);
        Py_XDECREF(pair);
        if (is_line < 0)
            Py_RETURN_NONE;
    }
    return counts;
}

/* An object of a kind that is made by keywords, of values in their order, which it takes over; NULL where one is. */
static PyObject *make(PyObject *kind, PyObject *nothing, const char *const *names, PyObject **values, int count) {
    PyObject *fields = PyDict_New(), *made = NULL;
    int whole = fields != NULL;
    for (int i = 0; i < count; i++)
        whole = whole && values[i] != NULL && PyDict_SetItemString(fields, names[i], values[i]) == 0;
    if (whole)
        made = PyObject_Call(kind, nothing, fields);
    for (int i = 0; i < count; i++)
        Py_XDECREF(values[i]);
    Py_XDECREF(fields);
    return made;
}

typedef struct {
    PyObject *name;
    int64_t received, sent;
    int unused;
} Interface;

/* Those that training talks over first, then those that carried most. */
static int by_traffic(const void *one, const void *other) {
    const Interface *a = one, *b = other;
    int64_t carried_a = a->received + a->sent, carried_b = b->received + b->sent;
    if (a->unused != b->unused)
        return a->unused - b->unused;
    return carried_a != carried_b ? (carried_a < carried_b ? 1 : -1) : PyUnicode_Compare(a->name, b->name);
}

/* Of a pair of counts as interface_counts gives it: 1, 0 for counts beyond 18 digits, -1 with an error set. */
static int counts_in(PyObject *pair, int64_t *received, int64_t *sent) {
    static const int64_t most = 1000000000000000000;
    int over_received, over_sent;
    if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2) {
        PyErr_SetString(PyExc_TypeError, "not a pair of counts");
        return -1;
    }
    *received = PyLong_AsLongLongAndOverflow(PyTuple_GetItem(pair, 0), &over_received);
    *sent = PyLong_AsLongLongAndOverflow(PyTuple_GetItem(pair, 1), &over_sent);
    if (PyErr_Occurred())
        return -1;
    return !over_received && !over_sent && *received >= 0 && *sent >= 0 && *received < most && *sent < most;
}

static PyObject *per_second(int64_t before, int64_t after, double interval_s) {
    if (after < before)
        Py_RETURN_NONE;
    return PyFloat_FromDouble((double)(after - before) / interval_s);
}

static PyObject *network_rates(PyObject *module, PyObject *args) {
    static const char *const names[] = {"name", "received_bytes_per_s", "sent_bytes_per_s", "used_by_training"};
    PyObject *kind, *after, *before, *used, *name, *pair, *rates = NULL, *nothing = PyTuple_New(0);
    double interval_s;
    Py_ssize_t most, count = 0, at = 0;
    int known = 1;
    (void)module;
    if (nothing == NULL || !PyArg_ParseTuple(args, "OO!O!dOn", &kind, &PyDict_Type, &after, &PyDict_Type, &before, &interval_s, &used,
                                             &most)) {
        Py_XDECREF(nothing);
        return NULL;
    }
    Interface *found = PyMem_Malloc((size_t)(PyDict_Size(after) + 1) * sizeof *found);
    if (found == NULL) {
        Py_DECREF(nothing);
        return PyErr_NoMemory();
    }
    while (known > 0 && PyDict_Next(after, &at, &name, &pair)) {
        Interface interface = {name, 0, 0, 0};
        int is_used = PySet_Contains(used, name);
        known = is_used < 0 ? -1 : counts_in(pair, &interface.received, &interface.sent);
        interface.unused = !is_used;
        if (is_used || interface.received > 0 || interface.sent > 0)
            found[count++] = interface;
    }
    if (known > 0) {
        qsort(found, (size_t)count, sizeof *found, by_traffic);
        rates = PyList_New(0);
    }
    for (Py_ssize_t i = 0; rates != NULL && known > 0 && i < count && i < most; i++) {
        int64_t received, sent;
        pair = PyDict_GetItemWithError(before, found[i].name);
        int has_rate = pair != NULL && interval_s > 0;
        if (pair != NULL)
            known = counts_in(pair, &received, &sent);
        if (known <= 0 || PyErr_Occurred())
            break;
        PyObject *values[] = {
            Py_NewRef(found[i].name),
            has_rate ? per_second(received, found[i].received, interval_s) : Py_NewRef(Py_None),
            has_rate ? per_second(sent, found[i].sent, interval_s) : Py_NewRef(Py_None),
            PyBool_FromLong(!found[i].unused),
        };
        PyObject *made = make(kind, nothing, names, values, 4);
        if (made == NULL || PyList_Append(rates, made) < 0)
            known = -1;
        Py_XDECREF(made);
    }
    PyMem_Free(found);
    Py_DECREF(nothing);
    if (known <= 0 || PyErr_Occurred())
        Py_CLEAR(rates);
    return rates == NULL && !PyErr_Occurred() ? Py_NewRef(Py_None) : rates;
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
    int64_t columns[COLUMNS] = {0};
    const char *bracket = end;
    while (bracket > at && bracket[-1] != ')')
        bracket--;
    if (bracket == at)
        return 0;
    at = skip_spaces(bracket, end);
    for (int column = 0; column < COLUMNS; column++, at = skip_spaces(skip_word(at, end), end)) {
        const char *number = at;
        if (at == end)
            return 0;
        columns[column] = number_at(&number, end);
        if (number == end || !is_space(*number))
            columns[column] = -1;
    }
    if (columns[USER] < 0 || columns[KERNEL] < 0 || columns[THREADS] < 0 || columns[PAGES] < 0)
        return 0;
    counts[0] = columns[USER] + columns[KERNEL];
    counts[1] = columns[THREADS];
    counts[2] = columns[PAGES];
    return 1;
}

/* Of /proc/PID/schedstat: nanoseconds waited for a core; -1 where it does not say, as where it has no time on one. */
static long long run_queue_wait(int descriptor) {
    char text[128];
    ssize_t size = descriptor < 0 ? -1 : pread(descriptor, text, sizeof text, 0);
    if (size <= 0 || size == (ssize_t)sizeof text)
        return -1;
    const char *at = text, *end = text + size;
    int64_t ran = number_at(&at, end);
    at = skip_spaces(at, end);
    return ran > 0 ? number_at(&at, end) : -1;
}

/* As Python rounds: to the nearest of two decimals in exact arithmetic. */
static PyObject *rounded(double number) {
    char *text = PyOS_double_to_string(number, 'f', 2, 0, NULL);
    if (text == NULL)
        return NULL;
    number = PyOS_string_to_double(text, NULL, NULL);
    PyMem_Free(text);
    return PyErr_Occurred() ? NULL : PyFloat_FromDouble(number);
}

/* Of (descriptor, pid, rank, ticks, ns, descriptor of its waits, wait) of each process, the numbers as they were at its last reading:
   the reading, the ticks and the wait now; None for one that has to be read by itself. */
static PyObject *process_readings(PyObject *module, PyObject *args) {
    static const char *const names[] = {"pid", "rank", "cpu_percent", "memory_bytes", "threads", "run_queue_wait_percent"};
    PyObject *kind, *processes, *found = NULL, *nothing = PyTuple_New(0);
    long long now_ns, ticks_per_s, page_bytes;
    char text[4096];
    (void)module;
    if (nothing == NULL ||
        !PyArg_ParseTuple(args, "OO!LLL", &kind, &PyList_Type, &processes, &now_ns, &ticks_per_s, &page_bytes))
        goto done;
    Py_ssize_t count = PyList_Size(processes);
    found = PyList_New(count);
    for (Py_ssize_t i = 0; found != NULL && i < count; i++) {
        int descriptor, waits;
        PyObject *pid, *rank, *item = NULL;
        long long ticks_before, before_ns, waited_before;
        int64_t counts[3];
        if (!PyArg_ParseTuple(PyList_GetItem(processes, i), "iOOLLiL", &descriptor, &pid, &rank, &ticks_before, &before_ns, &waits,
                              &waited_before)) {
            Py_CLEAR(found);
            break;
        }
        ssize_t size = descriptor < 0 ? -1 : pread(descriptor, text, sizeof text, 0);
        /* What fills it may go on. */
        if (size > 0 && size < (ssize_t)sizeof text && now_ns > before_ns && counts_of_process(text, text + size, counts)) {
            long long elapsed_ns = now_ns - before_ns, waited = run_queue_wait(waits), wait_ns = waited - waited_before;
            double percent = 100e9 * (double)(counts[0] - ticks_before) / (double)ticks_per_s / (double)elapsed_ns;
            wait_ns = wait_ns < 0 ? 0 : wait_ns > elapsed_ns ? elapsed_ns : wait_ns;
            PyObject *values[] = {
                Py_NewRef(pid),
                Py_NewRef(rank),
                rounded(percent > 0.0 ? percent : 0.0),
                PyLong_FromLongLong((long long)counts[2] * page_bytes),
                PyLong_FromLongLong((long long)counts[1]),
                waited < 0 || waited_before < 0 ? Py_NewRef(Py_None)
                                                : PyFloat_FromDouble((double)((1000 * wait_ns + elapsed_ns / 2) / elapsed_ns) / 10),
            };
            PyObject *made = make(kind, nothing, names, values, 6);
            item = made == NULL ? NULL : Py_BuildValue("(NLL)", made, (long long)counts[0], waited);
        }
        if (PyErr_Occurred() || PyList_SetItem(found, i, item == NULL ? Py_NewRef(Py_None) : item) < 0)
            Py_CLEAR(found);
    }
done:
    Py_XDECREF(nothing);
    return found;
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
    Answer *answers;
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
    int owing;
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
    work->jobs = 0;
    work->job = calloc((size_t)jobs + 1, sizeof *work->job);
    work->questions = calloc((size_t)questions + 1, sizeof *work->questions);
    work->answers = calloc((size_t)questions + 1, sizeof *work->answers);
    if (work->job == NULL || work->questions == NULL || work->answers == NULL)
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

static PyObject *Caller_wait(Caller *self, PyObject *args) {
    Work *work = self->work;
    double timeout_s;
    PyLockStatus status = PY_LOCK_ACQUIRED;
    if (!PyArg_ParseTuple(args, "d", &timeout_s))
        return NULL;
    if (!self->owing)
        return PyList_New(0);
    Py_BEGIN_ALLOW_THREADS
    status = PyThread_acquire_lock_timed(work->done, timeout_s > 0 ? (long long)(1e6 * timeout_s) : 0, 0);
    Py_END_ALLOW_THREADS
    if (status != PY_LOCK_ACQUIRED)
        Py_RETURN_NONE;
    self->owing = 0;
    PyObject *found = PyList_New(work->jobs);
    for (Py_ssize_t i = 0; found != NULL && i < work->jobs; i++) {
        Job job = work->job[i];
        PyObject *answers =
            PyBytes_FromStringAndSize((const char *)(work->answers + job.begin), job.count * (Py_ssize_t)sizeof(Answer));
        if (answers == NULL || PyList_SetItem(found, i, answers) < 0)
            Py_CLEAR(found);
    }
    return found;
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
    {"core_usage", core_usage, METH_VARARGS, "Of /proc/stat and what the last call gave: that, the node's percentage, the cores'."},
    {"interface_counts", interface_counts, METH_VARARGS, "Of /proc/net/dev: interface -> bytes received and sent."},
    {"whole_numbers", whole_numbers, METH_O, "The number that each of the open files holds."},
    {"network_rates", network_rates, METH_VARARGS, "Readings of interfaces from their counts now and before; see network.py."},
    {"process_readings", process_readings, METH_VARARGS, "Readings of processes from their open files; see processes.py."},
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
