/* A stub of NVIDIA's libnvidia-ml.so.1 for tests: no driver, no GPU. It answers the calls that nvidia-ml-py makes from a scenario.
 *
 * DISTMON_STUB_NVML names the scenario, read at every init; a line is
 *     TICK GPU CALL ERROR HOLD VALUE...
 * From TICK on, GPU (-1: the library itself; a MIG instance has a number of its own) answers CALL with NVML's ERROR, 0 with VALUEs.
 * A call that no line names is not supported. With HOLD >= 0 the call does not return before tick HOLD.
 * The file of that name with ".tick" holds the tick as a native int, so that a test moves time in any process.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define MAX_LINES 4096
#define MAX_VALUES 32
#define NAME_BYTES 32
#define MAX_GPUS 256
enum { SUCCESS = 0, UNINITIALIZED = 1, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, TIMEOUT = 10, FUNCTION_NOT_FOUND = 13,
       LIB_RM_VERSION_MISMATCH = 18 };

typedef struct {
    int tick, gpu, error, hold, count;
    char call[NAME_BYTES];
    char text[128];
    unsigned long long values[MAX_VALUES];
} Line;

static Line lines[MAX_LINES];
static int line_count;
static volatile int *tick;
static int initialized;
static int xid_given[MAX_GPUS];
static unsigned long long calls_made;

static void parse(char *text) {
    int used = 0;
    Line *line = &lines[line_count];
    memset(line, 0, sizeof *line);
    if (sscanf(text, "%d %d %31s %d %d %n", &line->tick, &line->gpu, line->call, &line->error, &line->hold, &used) < 5) return;
    char *rest = text + used;
    rest[strcspn(rest, "\n")] = 0;
    snprintf(line->text, sizeof line->text, "%s", rest);
    char *end = rest;
    while (line->count < MAX_VALUES) {
        unsigned long long value = strtoull(rest, &end, 10);
        if (end == rest) break;
        line->values[line->count++] = value;
        rest = end;
    }
    line_count++;
}

static int load(void) {
    char name[4096], text[1024];
    const char *path = getenv("DISTMON_STUB_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) return 0;
    line_count = 0;
    while (line_count < MAX_LINES && fgets(text, sizeof text, file)) parse(text);
    fclose(file);
    snprintf(name, sizeof name, "%s.tick", path);
    int fd = open(name, O_RDONLY);
    if (fd < 0) return 0;
    void *mapped = mmap(NULL, sizeof(int), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped == MAP_FAILED) return 0;
    tick = mapped;
    memset(xid_given, -1, sizeof xid_given);
    return 1;
}

/* The line that holds now, the latest; waits while it says so. NULL: not supported. */
static const Line *find(int gpu, const char *call) {
    const Line *found = NULL;
    int now = *tick;
    for (int i = 0; i < line_count; i++)
        if (lines[i].gpu == gpu && lines[i].tick <= now && (!found || lines[i].tick >= found->tick) && !strcmp(lines[i].call, call))
            found = &lines[i];
    while (found && *tick < found->hold) nanosleep(&(struct timespec){0, 1000000}, NULL);
    return found;
}

static int ask(void *device, const char *call, const Line **found) {
    __atomic_add_fetch(&calls_made, 1, __ATOMIC_RELAXED);
    if (!initialized) return UNINITIALIZED;
    *found = find((int)(long)device - 1, call);
    return *found ? (*found)->error : NOT_SUPPORTED;
}

static void *device_of(unsigned long long gpu) { return (void *)(long)(gpu + 1); }

static int numbers(void *device, const char *call, int count, unsigned *const *out) {
    const Line *line;
    int error = ask(device, call, &line);
    for (int i = 0; !error && i < count; i++) *out[i] = (unsigned)line->values[i];
    return error;
}

static int number(void *device, const char *call, unsigned *out) { return numbers(device, call, 1, &out); }

static int number64(void *device, const char *call, unsigned long long *out) {
    const Line *line;
    int error = ask(device, call, &line);
    if (!error) *out = line->values[0];
    return error;
}

static int text_of(void *device, const char *call, char *out, unsigned size) {
    const Line *line;
    int error = ask(device, call, &line);
    if (!error) snprintf(out, size, "%s", line->text);
    return error;
}

static int numbered(void *device, const char *call, unsigned which, unsigned *out) {
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%s.%u", call, which);
    return number(device, name, out);
}

/* Calls answered so far, for tests of how seldom they are made. */
EXPORT unsigned long long stub_calls_made(void) { return calls_made; }

EXPORT int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
#ifdef STUB_OF_AN_OLD_DRIVER
    return LIB_RM_VERSION_MISMATCH;
#endif
    if (!load()) return DRIVER_NOT_LOADED;
    const Line *line = find(-1, "init");
    if (line && line->error) return line->error;
    initialized = 1;
    return SUCCESS;
}
EXPORT int nvmlShutdown(void) {
    initialized = 0;
    return SUCCESS;
}
EXPORT const char *nvmlErrorString(int error) {
    (void)error;
    return "stub error";
}
EXPORT int nvmlSystemGetDriverVersion(char *out, unsigned size) { return text_of(device_of(-1), "driver", out, size); }
EXPORT int nvmlDeviceGetCount_v2(unsigned *count) { return number(device_of(-1), "count", count); }

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out) {
    const Line *line = find((int)index, "handle");
    *out = device_of(index);
    return !initialized ? UNINITIALIZED : line ? line->error : SUCCESS;
}
EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, void **out) {
    for (int i = 0; i < line_count; i++)
        if (!strcmp(lines[i].call, "uuid") && !strcmp(lines[i].text, uuid))
            return nvmlDeviceGetHandleByIndex_v2((unsigned)lines[i].gpu, out);
    return NOT_FOUND;
}

EXPORT int nvmlDeviceGetName(void *d, char *out, unsigned size) { return text_of(d, "name", out, size); }
EXPORT int nvmlDeviceGetUUID(void *d, char *out, unsigned size) { return text_of(d, "uuid", out, size); }
typedef struct {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char text[32];
} Pci;
EXPORT int nvmlDeviceGetPciInfo_v3(void *d, Pci *out) { return numbers(d, "pci", 3, (unsigned *[]){&out->domain, &out->bus, &out->device}); }
EXPORT int nvmlDeviceGetUtilizationRates(void *d, unsigned *out) { return numbers(d, "util", 2, (unsigned *[]){out, out + 1}); }
EXPORT int nvmlDeviceGetMemoryInfo(void *d, unsigned long long *out) {
    const Line *line;
    int error = ask(d, "mem", &line);
    if (error) return error;
    unsigned long long used = line->values[1] + (line->count > 2 ? line->values[2] : 0);
    out[0] = line->values[0], out[1] = line->values[0] - used, out[2] = used;
    return SUCCESS;
}
EXPORT int nvmlDeviceGetMemoryInfo_v2(void *d, unsigned long long *out) { /* out[0]: the version of the structure */
    const Line *line;
    if (ask(d, "mem_v2", &line) == FUNCTION_NOT_FOUND) return FUNCTION_NOT_FOUND;
    int error = ask(d, "mem", &line);
    if (error) return error;
    unsigned long long reserved = line->count > 2 ? line->values[2] : 0;
    out[1] = line->values[0], out[2] = reserved, out[3] = line->values[0] - line->values[1] - reserved, out[4] = line->values[1];
    return SUCCESS;
}
EXPORT int nvmlDeviceGetTemperature(void *d, int sensor, unsigned *out) {
    (void)sensor;
    return number(d, "temp", out);
}
EXPORT int nvmlDeviceGetPowerUsage(void *d, unsigned *out) { return number(d, "power_mw", out); }
EXPORT int nvmlDeviceGetEnforcedPowerLimit(void *d, unsigned *out) { return number(d, "limit_mw", out); }
EXPORT int nvmlDeviceGetTotalEnergyConsumption(void *d, unsigned long long *out) { return number64(d, "energy_mj", out); }
EXPORT int nvmlDeviceGetClockInfo(void *d, unsigned type, unsigned *out) { return numbered(d, "clock", type, out); }
EXPORT int nvmlDeviceGetCurrentClocksEventReasons(void *d, unsigned long long *out) { return number64(d, "reasons", out); }
EXPORT int nvmlDeviceGetPcieThroughput(void *d, unsigned counter, unsigned *out) { return numbered(d, "pcie", counter, out); }
EXPORT int nvmlDeviceGetFanSpeed(void *d, unsigned *out) { return number(d, "fan", out); }
EXPORT int nvmlDeviceGetPerformanceState(void *d, unsigned *out) { return number(d, "pstate", out); }
EXPORT int nvmlDeviceGetMigMode(void *d, unsigned *now, unsigned *later) { return numbers(d, "mig", 2, (unsigned *[]){now, later}); }
EXPORT int nvmlDeviceGetMaxMigDeviceCount(void *d, unsigned *out) { return number(d, "mig_max", out); }
EXPORT int nvmlDeviceGetGpuInstanceId(void *d, unsigned *out) { return number(d, "instance", out); }
EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(void *d, unsigned index, void **out) {
    const Line *line;
    int error = ask(d, "mig_devices", &line);
    if (error) return error;
    if ((int)index >= line->count) return NOT_FOUND;
    *out = device_of(line->values[index]);
    return SUCCESS;
}
EXPORT int nvmlDeviceGetRemappedRows(void *d, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failure) {
    return numbers(d, "remapped", 4, (unsigned *[]){corrected, uncorrected, pending, failure});
}
EXPORT int nvmlDeviceGetRetiredPages(void *d, unsigned cause, unsigned *count, unsigned long long *pages) {
    unsigned present;
    int error = numbered(d, "retired", cause, &present);
    if (error) return error;
    int fits = pages || !present;
    for (unsigned i = 0; pages && i < present && i < *count; i++) pages[i] = i;
    *count = present;
    return fits ? SUCCESS : INSUFFICIENT_SIZE;
}
EXPORT int nvmlDeviceGetTotalEccErrors(void *d, unsigned kind, unsigned since, unsigned long long *out) {
    char name[NAME_BYTES];
    (void)since;
    snprintf(name, sizeof name, "ecc.%u", kind);
    return number64(d, name, out);
}

typedef struct { /* as in nvidia-ml-py's structures */
    unsigned pid;
    unsigned long long memory;
    unsigned instance, compute_instance;
} Process;
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *count, Process *out) {
    const Line *line;
    int error = ask(d, "processes", &line);
    if (error) return error;
    unsigned present = (unsigned)line->count / 2, room = *count;
    *count = present;
    if (room < present) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < present; i++)
        out[i] = (Process){(unsigned)line->values[2 * i], line->values[2 * i + 1], ~0u, ~0u};
    return SUCCESS;
}

typedef struct {
    unsigned field, scope;
    long long timestamp, latency_us;
    unsigned type;
    int error;
    unsigned long long value;
} Field;
EXPORT int nvmlDeviceGetFieldValues(void *d, int count, Field *fields) {
    char name[NAME_BYTES];
    const Line *line;
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "field.%u", fields[i].field);
        fields[i].type = 3; /* unsigned long long */
        fields[i].error = ask(d, name, &line);
        if (!fields[i].error) fields[i].value = line->values[0];
    }
    return SUCCESS;
}

/* A sample is the device or instance that it was taken of; metrics are the ones that hold when they are asked for. */
typedef struct {
    unsigned metric;
    int error;
    double value;
    const char *names[3];
} Metric;
typedef struct {
    unsigned version, count;
    void **before, **now;
    Metric metrics[];
} Metrics;
EXPORT int nvmlGpmQueryDeviceSupport(void *d, unsigned *out) { /* out[0]: the version of the structure */
    const Line *line;
    int error = ask(d, "gpm_support", &line);
    if (!error) out[1] = (unsigned)line->values[0];
    return error;
}
EXPORT int nvmlGpmSampleAlloc(void ***sample) {
    *sample = calloc(1, sizeof(void *));
    return SUCCESS;
}
EXPORT int nvmlGpmSampleFree(void **sample) {
    free(sample);
    return SUCCESS;
}
EXPORT int nvmlGpmSampleGet(void *d, void **sample) {
    const Line *line;
    *sample = d;
    return ask(d, "gpm", &line);
}
EXPORT int nvmlGpmMigSampleGet(void *d, unsigned instance, void **sample) {
    const Line *line;
    int error = ask(d, "mig_devices", &line);
    for (int i = 0; !error && i < line->count; i++) {
        unsigned number;
        *sample = device_of(line->values[i]);
        if (!nvmlDeviceGetGpuInstanceId(*sample, &number) && number == instance) return ask(*sample, "gpm", &line);
    }
    return error ? error : NOT_FOUND;
}
EXPORT int nvmlGpmMetricsGet(Metrics *asked) {
    const Line *line;
    int error = ask(*asked->now, "gpm", &line);
    if (!error && *asked->before != *asked->now) error = NOT_FOUND;
    for (unsigned i = 0; !error && i < asked->count; i++) { /* the line has metrics and their values, in tenths */
        asked->metrics[i].error = NOT_SUPPORTED;
        for (int j = 0; j + 1 < line->count; j += 2)
            if (line->values[j] == asked->metrics[i].metric)
                asked->metrics[i].error = SUCCESS, asked->metrics[i].value = (double)line->values[j + 1] / 10;
    }
    return error;
}

typedef struct {
    void *device;
    unsigned long long type, data;
    unsigned instance, compute_instance;
} Event;
/* A set is the number of the one GPU that is registered with it. */
EXPORT int nvmlEventSetCreate(void **set) {
    *set = calloc(1, sizeof(int));
    return SUCCESS;
}
EXPORT int nvmlEventSetFree(void *set) {
    free(set);
    return SUCCESS;
}
EXPORT int nvmlDeviceRegisterEvents(void *d, unsigned long long types, int *set) {
    const Line *line;
    (void)types;
    *set = (int)(long)d - 1;
    return ask(d, "events", &line);
}
EXPORT int nvmlEventSetWait_v2(int *set, Event *out, unsigned timeout_ms) {
    const Line *line;
    (void)timeout_ms;
    int error = ask(device_of((unsigned long long)*set), "xid", &line);
    if (error || !line->count || xid_given[*set] == line->tick) return TIMEOUT;
    xid_given[*set] = line->tick;
    *out = (Event){device_of((unsigned long long)*set), 8, line->values[0], ~0u, ~0u};
    return SUCCESS;
}
