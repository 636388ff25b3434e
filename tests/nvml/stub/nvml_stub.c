/* A stand-in for NVIDIA's library that answers, refuses, delays and lies as a script says.
 *
 * The script is the file named by PRAXIST_ZMQ_NVML_STUB, read again whenever it was replaced, also
 * while a delay runs. Every init and shutdown that succeeds adds a line to SCRIPT.calls. Lines:
 *
 *   order 2 0 1                        devices by index; a device that is not named is not listed
 *   error CALL CODE                    the call fails, for every device
 *   delay CALL MILLISECONDS            the call takes that long
 *   device ID uuid TEXT                and so for each device:
 *   device ID name TEXT
 *   device ID memory TOTAL USED        bytes
 *   device ID reserved BYTES           of them the driver's own, not in USED; without this line the
 *                                      library has no second form of that question
 *   device ID utilization PERCENT
 *   device ID sample STAMP PERCENT     a reading with a stamp; none given: one of now
 *   device ID mig CURRENT PENDING
 *   device ID compute PID BYTES        a process; -1 is "not available"
 *   device ID graphics PID BYTES
 *   device ID busy PID STAMP PERCENT   stamp 0 is now
 *   device ID error CALL CODE
 *   device ID delay CALL MILLISECONDS
 *
 * CALL: init shutdown count handle uuid name memory utilization samples mig compute graphics busy,
 * or all. CODE is a number of nvmlReturn_t. Layouts are those of NVIDIA's public header.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define DEVICES 128
#define ROWS 256
#define RULES 128
#define OK 0
#define UNINITIALIZED 1
#define INVALID_ARGUMENT 2
#define NOT_SUPPORTED 3
#define NOT_FOUND 6
#define INSUFFICIENT_SIZE 7
#define FUNCTION_NOT_FOUND 13

typedef unsigned long long u64;
typedef struct { unsigned pid; u64 memory; unsigned instance, compute_instance; } process_t;
typedef struct { unsigned pid; u64 stamp; unsigned sm, mem, enc, dec; } busy_t;
typedef struct { u64 stamp; union { double d; unsigned ui; u64 u; } value; } sample_t;
typedef struct { unsigned version; u64 total, reserved, free, used; } memory_v2_t;
typedef struct { char call[16]; int device, code; long delay_ms; } rule_t;
typedef struct {
    char uuid[128], name[128];
    u64 total, used, reserved;
    unsigned utilization, mig[2], reserves;
    process_t compute[ROWS], graphics[ROWS];
    unsigned computes, graphicses, busies, samples;
    busy_t busy[ROWS];
    sample_t sample[ROWS];
} device_t;

static device_t devices[DEVICES];
static rule_t rules[RULES];
static int order[DEVICES], listed, ruled, initialised;
static struct stat read_as;

static u64 now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (u64)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void read_rule(int device, const char *what, const char *rest) {
    rule_t rule = {.device = device};
    long value;
    if (ruled == RULES || sscanf(rest, "%15s %ld", rule.call, &value) != 2) return;
    if (!strcmp(what, "delay")) rule.delay_ms = value;
    else if (!strcmp(what, "error")) rule.code = value;
    else return;
    rules[ruled++] = rule;
}

static void read_device(int id, const char *what, char *rest) {
    device_t *d = &devices[id];
    u64 a = 0, b = 0, c = 0;
    int numbers = sscanf(rest, "%llu %llu %llu", &a, &b, &c);
    if (!strcmp(what, "uuid")) snprintf(d->uuid, sizeof d->uuid, "%.96s", rest);
    else if (!strcmp(what, "name")) snprintf(d->name, sizeof d->name, "%.96s", rest);
    else if (!strcmp(what, "memory")) { d->total = a; d->used = b; }
    else if (!strcmp(what, "reserved")) { d->reserved = a; d->reserves = 1; }
    else if (!strcmp(what, "utilization")) d->utilization = a;
    else if (!strcmp(what, "mig")) { d->mig[0] = a; d->mig[1] = b; }
    else if (!strcmp(what, "sample") && d->samples < ROWS) {
        d->sample[d->samples].stamp = a;
        d->sample[d->samples++].value.u = b;
    } else if (!strcmp(what, "busy") && numbers == 3 && d->busies < ROWS)
        d->busy[d->busies++] = (busy_t){a, b, c, 0, 0, 0};
    else if (!strcmp(what, "compute") && d->computes < ROWS)
        d->compute[d->computes++] = (process_t){a, b, -1, -1};
    else if (!strcmp(what, "graphics") && d->graphicses < ROWS)
        d->graphics[d->graphicses++] = (process_t){a, b, -1, -1};
    else read_rule(id, what, rest);
}

static void read_script(void) {
    const char *path = getenv("PRAXIST_ZMQ_NVML_STUB");
    struct stat now;
    if (!path || stat(path, &now)) { listed = ruled = 0; return; }
    if (now.st_ino == read_as.st_ino && now.st_mtim.tv_nsec == read_as.st_mtim.tv_nsec &&
        now.st_mtim.tv_sec == read_as.st_mtim.tv_sec) return;
    FILE *file = fopen(path, "re");
    if (!file) return;
    char line[512];
    memset(devices, 0, sizeof devices);
    listed = ruled = 0;
    while (fgets(line, sizeof line, file)) {
        char what[16] = "", field[16] = "";
        int id = 0, at = 0;
        line[strcspn(line, "\n")] = 0;
        if (sscanf(line, "device %d %15s %n", &id, field, &at) == 2 && id >= 0 && id < DEVICES) {
            read_device(id, field, line + at);
        } else if (!strncmp(line, "order", 5)) {
            char *word = strtok(line + 5, " ");
            for (; word && listed < DEVICES; word = strtok(NULL, " ")) order[listed++] = atoi(word);
        } else if (sscanf(line, "%15s %n", what, &at) == 1) {
            read_rule(-1, what, line + at);
        }
    }
    fclose(file);
    read_as = now;
}

static int applies(const rule_t *r, const char *call, int device) {
    return (r->device == device || r->device == -1) &&
           (!strcmp(r->call, call) || (!strcmp(r->call, "all") && device >= 0));
}

/* What the script says about a call: waits out its delay, returns its error. */
static int enter(const char *call, int device) {
    u64 began = now_us();
    for (;;) {
        long wait_ms = 0;
        int code = OK;
        read_script();
        for (int i = 0; i < ruled; i++)
            if (applies(&rules[i], call, device)) {
                if (rules[i].delay_ms) wait_ms = rules[i].delay_ms;
                else code = rules[i].code;
            }
        if ((long)((now_us() - began) / 1000) >= wait_ms) {
            if (code != OK) return code;
            return initialised || !strcmp(call, "init") ? OK : UNINITIALIZED;
        }
        nanosleep(&(struct timespec){0, 5000000}, NULL);
    }
}

static void note(const char *what) {
    char path[512];
    const char *script = getenv("PRAXIST_ZMQ_NVML_STUB");
    snprintf(path, sizeof path, "%s.calls", script ? script : "/dev/null/none");
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (file < 0) return;
    if (write(file, what, strlen(what)) < 0) perror("nvml stub");
    close(file);
}

#define DEVICE(handle) int id = (int)(long)(handle) - 1; device_t *d = &devices[id]
#define ENTER(call) do { int code = enter(call, id); if (code) return code; } while (0)

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    int code = enter("init", -1);
    if (code == OK) { initialised = 1; note("init\n"); }
    return code;
}

int nvmlShutdown(void) {
    int code = enter("shutdown", -1);
    if (code == OK) { initialised = 0; note("shutdown\n"); }
    return code;
}

const char *nvmlErrorString(int code) { (void)code; return "an error of the stub"; }

int nvmlDeviceGetCount_v2(unsigned *count) {
    int code = enter("count", -1);
    *count = listed;
    return code;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    read_script();
    if (index >= (unsigned)listed) return INVALID_ARGUMENT;
    int id = order[index];
    ENTER("handle");
    *handle = (void *)(long)(id + 1);
    return OK;
}

int nvmlDeviceGetUUID(void *handle, char *text, unsigned size) {
    DEVICE(handle);
    ENTER("uuid");
    snprintf(text, size, "%s", d->uuid);
    return OK;
}

int nvmlDeviceGetName(void *handle, char *text, unsigned size) {
    DEVICE(handle);
    ENTER("name");
    snprintf(text, size, "%s", d->name);
    return OK;
}

int nvmlDeviceGetMemoryInfo(void *handle, u64 *memory) {
    DEVICE(handle);
    ENTER("memory");
    memory[0] = d->total;
    memory[1] = d->total - d->used - d->reserved;
    memory[2] = d->used + d->reserved;
    return OK;
}

int nvmlDeviceGetMemoryInfo_v2(void *handle, memory_v2_t *memory) {
    DEVICE(handle);
    if (!d->reserves) return FUNCTION_NOT_FOUND;
    ENTER("memory");
    memory->total = d->total;
    memory->reserved = d->reserved;
    memory->free = d->total - d->used - d->reserved;
    memory->used = d->used;
    return OK;
}

int nvmlDeviceGetUtilizationRates(void *handle, unsigned *rates) {
    DEVICE(handle);
    ENTER("utilization");
    rates[0] = d->utilization;
    rates[1] = 0;
    return OK;
}

int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
    DEVICE(handle);
    ENTER("mig");
    *current = d->mig[0];
    *pending = d->mig[1];
    return OK;
}

int nvmlDeviceGetSamples(void *handle, int kind, u64 since, int *type, unsigned *count,
                         sample_t *samples) {
    DEVICE(handle);
    ENTER("samples");
    sample_t fresh = {now_us(), {.u = d->utilization}};
    const sample_t *from = d->samples ? d->sample : &fresh;
    unsigned have = d->samples ? d->samples : 1, found = 0;
    *type = 1;
    for (unsigned i = 0; i < have; i++)
        if (from[i].stamp > since) {
            if (samples && found < *count) samples[found] = from[i];
            found++;
        }
    if (kind != 1) return NOT_SUPPORTED;
    if (!found) return NOT_FOUND;
    *count = found;
    return OK;
}

static int list(const process_t *from, unsigned have, unsigned *count, process_t *processes) {
    unsigned room = *count;
    *count = have;
    if (!have) return OK;
    if (room < have || !processes) return INSUFFICIENT_SIZE;
    memcpy(processes, from, have * sizeof *from);
    return OK;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, process_t *out) {
    DEVICE(handle);
    ENTER("compute");
    return list(d->compute, d->computes, count, out);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned *count, process_t *out) {
    DEVICE(handle);
    ENTER("graphics");
    return list(d->graphics, d->graphicses, count, out);
}

int nvmlDeviceGetProcessUtilization(void *handle, busy_t *out, unsigned *count, u64 since) {
    DEVICE(handle);
    ENTER("busy");
    unsigned found = 0, room = *count;
    for (unsigned i = 0; i < d->busies; i++) {
        busy_t row = d->busy[i];
        if (!row.stamp) row.stamp = now_us();
        if (row.stamp <= since) continue;
        if (out && found < room) out[found] = row;
        found++;
    }
    *count = found;
    if (!found) return NOT_FOUND;
    return out && found <= room ? OK : INSUFFICIENT_SIZE;
}
