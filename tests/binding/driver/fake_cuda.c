/* A fake libcuda.so.1 of two devices, for `binding check`. A context is one line "UUID PID" in the
   file $FAKE_DRIVER, which the fake NVML beside it reads. $FAKE_CUDA says how it misbehaves:
     init        cuInit fails          hang    cuInit never returns
     other       contexts land on the other device, CUDA names the right one
     wrong       contexts land on the other device, and CUDA names that
     hidden      no process is shown   many    the mask is ignored
     crash       cuInit dies by a signal       chatter  the library writes to stdout first */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *NAMES[2] = {"GPU-11111111-1111-4111-8111-111111111111",
                               "GPU-22222222-2222-4222-8222-222222222222"};
static int visible[2], count;

static int is(const char *fault) {
    const char *set = getenv("FAKE_CUDA");
    return set && !strcmp(set, fault);
}

int cuInit(unsigned flags) {
    (void)flags;
    const char *mask = getenv("CUDA_VISIBLE_DEVICES");
    char *copy = strdup(mask ? mask : "");
    if (is("init")) return 999;
    if (is("crash")) raise(SIGSEGV);
    while (is("hang")) pause();
    if (is("chatter")) { printf("driver banner\n"); fflush(stdout); }
    for (char *name = strtok(copy, ","); name && count < 2; name = strtok(NULL, ",")) {
        int device = !strcmp(name, NAMES[0]) ? 0 : !strcmp(name, NAMES[1]) ? 1 : -1;
        if (device < 0) break;
        visible[count++] = device;
    }
    if (is("many")) { visible[0] = 0; visible[1] = 1; count = 2; }
    free(copy);
    return count ? 0 : 100;
}

int cuDeviceGetCount(int *found) { *found = count; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = visible[ordinal]; return 0; }

int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    if (is("wrong")) device = 1 - device;
    memset(uuid, device ? 0x22 : 0x11, 16);
    uuid[6] = device ? 0x42 : 0x41;
    uuid[8] = device ? 0x82 : 0x81;
    return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
    FILE *file = is("hidden") ? NULL : fopen(getenv("FAKE_DRIVER"), "a");
    if (is("other") || is("wrong")) device = 1 - device;
    if (file) { fprintf(file, "%s %d\n", NAMES[device], (int)getpid()); fclose(file); }
    *context = &count;
    return 0;
}

int cuCtxSetCurrent(void *context) { return context ? 0 : 1; }
int cuMemAlloc_v2(unsigned long long *at, size_t bytes) { *at = bytes; return 0; }

int cuGetErrorString(int code, const char **text) {
    *text = code == 100 ? "no CUDA-capable device is detected" : "unknown error";
    return 0;
}
