/* A stand-in for libcuda.so.1 and libnvidia-ml.so.1 with one device. What it answers, and where it fails, is set when it is
 * compiled: -DCU_INIT=100, -DCOUNT=0, -DWITHOUT_UUID, -DNVML_INIT=9, -DNO_NVML_MEMORY, -DMIG, -DNAME=..., -DSMS=... */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#ifndef CU_INIT
#define CU_INIT 0
#endif
#ifndef COUNT
#define COUNT 1
#endif
#ifndef NVML_INIT
#define NVML_INIT 0
#endif
#ifndef NAME
#define NAME "NVIDIA H200"
#endif
#ifndef SMS
#define SMS 132
#endif
#ifndef ATTRIBUTE_STATUS
#define ATTRIBUTE_STATUS 0
#endif

static int initialised;

int cuInit(unsigned flags) { initialised = (CU_INIT == 0 && flags == 0); return CU_INIT; }
int cuDeviceGetCount(int *count) { *count = COUNT; return initialised ? 0 : 3; }
int cuDeviceGet(int *device, int index) { *device = 70 + index; return index < COUNT ? 0 : 101; }

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    if (device < 70) return 101;
    if (ATTRIBUTE_STATUS) return ATTRIBUTE_STATUS;
    switch (attribute) {
    case 1: *value = 1024; return 0;
    case 8: *value = 49152; return 0;
    case 10: *value = 32; return 0;
    case 13: *value = 1980000; return 0;
    case 16: *value = SMS; return 0;
    case 36: *value = 3201000; return 0;
    case 37: *value = 6016; return 0;
    case 38: *value = 62914560; return 0;
    case 39: *value = 2048; return 0;
    case 75: *value = 9; return 0;
    case 76: *value = 0; return 0;
    case 81: *value = 233472; return 0;
    case 82: *value = 65536; return 0;
    case 97: *value = 232448; return 0;
    }
    return 1;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = 150045458432; return device < 70 ? 101 : 0; }

#ifndef WITHOUT_UUID
int cuDeviceGetUuid_v2(char uuid[16], int device) {
    for (int i = 0; i < 16; i++) uuid[i] = (char)(0xa0 + i);
    return device < 70 ? 101 : 0;
}
#endif

#ifdef MIG
#define UUID "MIG-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf"
#else
#define UUID "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf"
#endif

static int sessions;
static char card;

int nvmlInit_v2(void) { if (NVML_INIT == 0) sessions++; return NVML_INIT; }
int nvmlShutdown(void) { sessions--; return 0; }
int open_sessions(void) { return sessions; }

int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    if (sessions < 1) return 1;
    if (strcmp(uuid, UUID) != 0) return 6;
    *handle = &card;
    return 0;
}

int nvmlDeviceGetName(void *handle, char *name, unsigned length) {
    if (handle != &card) return 2;
    snprintf(name, length, "%s", NAME);
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *handle, unsigned long long memory[3]) {
    if (handle != &card) return 2;
#ifdef NO_NVML_MEMORY
    return 3;
#else
    memory[0] = 150754820096ULL;
    memory[1] = 150000000000ULL;
    memory[2] = 754820096ULL;
    return 0;
#endif
}

int nvmlSystemGetDriverVersion(char *version, unsigned length) { snprintf(version, length, "575.57.08"); return 0; }
