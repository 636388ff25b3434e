/* A fake libnvidia-ml.so.1 of two devices, for `binding check`: shows the contexts in the file
   $FAKE_DRIVER that the fake libcuda beside it writes. $FAKE_NVML says how it misbehaves:
     hang        the device count never returns      reload  it cannot be initialised
     denied      processes are not told              late    it hangs once a context is there */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { unsigned pid; unsigned long long memory; unsigned gpu, compute; } process;

static const char *NAMES[2] = {"GPU-11111111-1111-4111-8111-111111111111",
                               "GPU-22222222-2222-4222-8222-222222222222"};

static int is(const char *fault) {
    const char *set = getenv("FAKE_NVML");
    return set && !strcmp(set, fault);
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; return is("reload") ? 18 : 0; }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return code == 18 ? "Version mismatch" : "fake error"; }

int nvmlDeviceGetCount_v2(unsigned *found) {
    FILE *file = is("late") ? fopen(getenv("FAKE_DRIVER"), "r") : NULL;
    while (is("hang") || (file && fgetc(file) != EOF)) pause();
    if (file) fclose(file);
    *found = 2;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = (void *)NAMES[index];
    return 0;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned size) {
    snprintf(uuid, size, "%s", (char *)device);
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *found, process *list) {
    char name[64];
    unsigned pid, most = *found, shown = 0;
    FILE *file = fopen(getenv("FAKE_DRIVER"), "r");
    if (is("denied")) return 4;
    while (file && fscanf(file, "%63s %u", name, &pid) == 2) {
        if (strcmp(name, (char *)device)) continue;
        if (shown < most && list) list[shown] = (process){pid, 1 << 20, ~0u, ~0u};
        shown++;
    }
    if (file) fclose(file);
    *found = shown;
    return shown > most || (shown && !list) ? 7 : 0;
}
