/* A stand-in for CANN's profiling library, for tests on machines without an NPU.
 *
 * It offers the calls that steplens uses, refuses what CANN documents as wrong (order, lengths, ranges, devices), writes
 * a PROF_ directory with the files that CANN writes while it records, and keeps a log of every call.
 *
 * Environment, read at every call:
 *   STEPLENS_TEST_LOG        file that gets one JSON object per call
 *   STEPLENS_TEST_FAIL       "aclprofStart=500005,aclprofStop@2=1": a call, or only its second one, returns this code
 *                            and does nothing; aclprofCreateConfig returns NULL for any code
 *   STEPLENS_TEST_DELAY      "aclprofStart=200": the call takes this many ms
 *   STEPLENS_TEST_DEVICES    number of devices, 8 by default
 *   STEPLENS_TEST_SUPPORTED  mask of the data that this "chip" can record, all known bits by default
 *   STEPLENS_TEST_SILENT     "host": no device directory is written; "all": no directory at all
 *   STEPLENS_TEST_FEATURES   "ATTR:1:1:all:all,...": name, compatibility, version, component, version of the component
 *
 * Compile with -DWITHOUT_<CALL> to leave a call out, with -DPLAIN_FEATURES for the feature list without hidden pointers,
 * with -DABORTS_WHEN_LOADED for a library that ends the process that loads it.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    SUCCESS = 0,
    INVALID_PARAM = 100000,
    REPEAT_INITIALIZE = 100002,
    INVALID_FILE = 100003,
    INVALID_PROFILING_CONFIG = 100010,
    PROF_ALREADY_RUN = 100042,
    PROF_NOT_RUN = 100043,
    PROF_API_CONFLICT = 148047,
    FEATURE_UNSUPPORTED = 200006,
    PROF_MODULES_UNSUPPORTED = 200007
};

#define MSPROFTX 0x80ULL
#define EVERYTHING (0x1ULL | 0x2 | 0x4 | 0x8 | 0x10 | 0x20 | 0x40 | MSPROFTX | 0x100 | 0x800 | 0x1000 | 0x4000 | 0x800000000ULL)
#define PATH_LIMIT 4096
#define MOST_CONFIGS 64
#define MOST_DEVICES 64
#define MOST_FEATURES 16

typedef struct {
    int live;
    uint32_t device;
    uint32_t device_count;
    int metrics;
    uint64_t mask;
} Config;

static Config configs[MOST_CONFIGS];
static int initialized, started, registered, warm, recording;
static const Config *running;
static char result[PATH_LIMIT + 1];
static char written[PATH_LIMIT + 128];
static uint32_t written_device;
static uint64_t started_ns;
static unsigned directories;
static pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER;

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

/* The number after "name=" in a comma-separated list; `count` tells "name@2" from "name". */
static int listed(const char *variable, const char *name, int count, long *value)
{
    const char *text = getenv(variable);
    char plain[80], counted[96];
    snprintf(plain, sizeof plain, "%s=", name);
    snprintf(counted, sizeof counted, "%s@%d=", name, count);
    while (text && *text) {
        if (!strncmp(text, plain, strlen(plain)) || !strncmp(text, counted, strlen(counted))) {
            *value = strtol(strchr(text, '=') + 1, NULL, 0);
            return 1;
        }
        text = strchr(text, ',');
        text = text ? text + 1 : NULL;
    }
    return 0;
}

typedef struct {
    const char *name;
    int count;
    int violation;
    uint64_t begin;
    long forced;
    int fails;
} Call;

static Call enter(const char *name, int *count)
{
    long delay = 0;
    Call call = {.name = name, .begin = clock_ns(CLOCK_REALTIME)};
    /* Two calls at once are an error of the caller: one of them would see half of what the other does. */
    call.violation = pthread_mutex_trylock(&busy) != 0;
    if (call.violation)
        pthread_mutex_lock(&busy);
    call.count = ++*count;
    if (listed("STEPLENS_TEST_DELAY", name, call.count, &delay))
        usleep((useconds_t)delay * 1000);
    call.fails = listed("STEPLENS_TEST_FAIL", name, call.count, &call.forced);
    return call;
}

static int leave(Call *call, int code, const char *arguments)
{
    const char *path = getenv("STEPLENS_TEST_LOG");
    FILE *log = path ? fopen(path, "a") : NULL;
    if (call->fails)
        code = (int)call->forced;
    if (log) {
        fprintf(log,
                "{\"call\": \"%s\", \"code\": %d, \"begin_ns\": %llu, \"end_ns\": %llu, \"thread\": %ld, \"concurrent\": %s%s%s}\n",
                call->name, code, (unsigned long long)call->begin, (unsigned long long)clock_ns(CLOCK_REALTIME),
                (long)syscall(SYS_gettid), call->violation ? "true" : "false", *arguments ? ", " : "", arguments);
        fclose(log);
    }
    pthread_mutex_unlock(&busy);
    return code;
}

/* --- the PROF_ directory */

static void make_directory(const char *path)
{
    mkdir(path, 0750);
}

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[2 * PATH_LIMIT];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    if (file) {
        fputs(text, file);
        fchmod(fileno(file), 0640);
        fclose(file);
    }
}

static void write_clocks(const char *folder, const char *name, const char *key)
{
    char text[256];
    uint64_t now, raw, apart;
    int tries = 0;
    /* Both of one moment: once more where another program ran in between. */
    do {
        raw = clock_ns(CLOCK_MONOTONIC_RAW);
        now = clock_ns(CLOCK_REALTIME);
        apart = clock_ns(CLOCK_MONOTONIC_RAW) - raw;
    } while (apart > 100000 && ++tries < 100);
    time_t seconds = (time_t)(now / 1000000000ULL);
    struct tm local;
    char stamp[32];
    localtime_r(&seconds, &local);
    strftime(stamp, sizeof stamp, "%Y-%m-%d %H:%M:%S", &local);
    snprintf(text, sizeof text, "{\"collectionDate%s\":\"%s.%06llu\",\"collectionTime%s\":\"%llu\",\"clockMonotonicRaw\":\"%llu\"}",
             key, stamp, (unsigned long long)(now / 1000 % 1000000), key, (unsigned long long)(now / 1000),
             (unsigned long long)raw);
    write_file(folder, name, text);
    char done[80];
    snprintf(done, sizeof done, "%s.done", name);
    snprintf(text, sizeof text, "filesize:%zu\n", strlen(text));
    write_file(folder, done, text);
}

static int silent(const char *what)
{
    const char *text = getenv("STEPLENS_TEST_SILENT");
    return text && (!strcmp(text, "all") || !strcmp(text, what));
}

/* What CANN has on disk once it records. */
static void begin_directory(const Config *config)
{
    char folder[2 * PATH_LIMIT], text[1024], stamp[32], suffix[17];
    uint64_t now = clock_ns(CLOCK_REALTIME);
    time_t seconds = (time_t)(now / 1000000000ULL);
    struct tm local;
    if (silent("all"))
        return;
    localtime_r(&seconds, &local);
    strftime(stamp, sizeof stamp, "%Y%m%d%H%M%S", &local);
    uint64_t random = now ^ ((uint64_t)getpid() << 32);
    for (int i = 0; i < 16; i++) {
        random = random * 6364136223846793005ULL + 1442695040888963407ULL;
        suffix[i] = (char)('A' + (random >> 33) % 26);
    }
    suffix[16] = 0;
    directories++;
    snprintf(written, sizeof written, "%s/PROF_%06u_%s%03llu_%s", result, directories, stamp,
             (unsigned long long)(now / 1000000 % 1000), suffix);
    written_device = config->device;
    make_directory(written);

    snprintf(folder, sizeof folder, "%s/host", written);
    make_directory(folder);
    write_clocks(folder, "start_info", "Begin");
    snprintf(text, sizeof text,
             "{\"jobInfo\":\"NA\",\"version\":\"1.0\",\"OS\":\"Linux\",\"hostname\":\"host\",\"hwtype\":\"aarch64\",\"devices\":\"%u\","
             "\"CPU\":[{\"Id\":0,\"Name\":\"HiSilicon\",\"Frequency\":\"100.000000\",\"Logical_CPU_Count\":1}],"
             "\"platform_version\":\"5\",\"pid\":\"%d\",\"hostUid\":\"1\",\"rank_id\":0}",
             config->device, (int)getpid());
    write_file(folder, "info.json", text);
    /* As if the counter of the host ran at 100 MHz beside the raw clock. */
    uint64_t raw = clock_ns(CLOCK_MONOTONIC_RAW);
    snprintf(text, sizeof text, "[Host]\nclock_monotonic_raw: %llu\ncntvct: %llu\n", (unsigned long long)raw,
             (unsigned long long)(raw / 10));
    write_file(folder, "host_start.log", text);

    if (!silent("host")) {
        snprintf(folder, sizeof folder, "%s/device_%u", written, config->device);
        make_directory(folder);
        snprintf(text, sizeof text, "start_info.%u", config->device);
        write_clocks(folder, text, "Begin");
    }
}

static void end_directory(void)
{
    char folder[2 * PATH_LIMIT], text[256];
    if (!*written)
        return;
    snprintf(folder, sizeof folder, "%s/host", written);
    write_clocks(folder, "end_info", "End");
    if (silent("host"))
        return;
    snprintf(folder, sizeof folder, "%s/device_%u", written, written_device);
    snprintf(text, sizeof text, "end_info.%u", written_device);
    write_clocks(folder, text, "End");
    snprintf(folder, sizeof folder, "%s/device_%u/data", written, written_device);
    make_directory(folder);
    /* The "raw device data": from when to when this device recorded. */
    snprintf(text, sizeof text, "%llu %llu\n", (unsigned long long)started_ns, (unsigned long long)clock_ns(CLOCK_REALTIME));
    write_file(folder, "recorded", text);
}

/* --- the calls */

static Config *known(const void *handle)
{
    for (int i = 0; i < MOST_CONFIGS; i++)
        if (&configs[i] == handle && configs[i].live)
            return &configs[i];
    return NULL;
}

static uint64_t supported(void)
{
    const char *text = getenv("STEPLENS_TEST_SUPPORTED");
    return text ? strtoull(text, NULL, 0) : EVERYTHING;
}

static int calls_init, calls_set, calls_create, calls_warmup, calls_start, calls_register, calls_stop, calls_destroy,
    calls_finalize, calls_features, calls_features_v2;

#ifndef WITHOUT_INIT
int aclprofInit(const char *path, size_t length)
{
    Call call = enter("aclprofInit", &calls_init);
    int code = SUCCESS;
    struct stat information;
    const char *mode = getenv("PROFILING_MODE");
    char text[PATH_LIMIT + 32];
    snprintf(text, sizeof text, "\"path\": \"%.*s\"", (int)(length < PATH_LIMIT ? length : 0), path ? path : "");
    if (call.fails)
        return leave(&call, 0, text);
    if (mode && !strcmp(mode, "dynamic"))
        code = FEATURE_UNSUPPORTED;
    else if (!path || !length || length > PATH_LIMIT || strlen(path) != length)
        code = INVALID_PARAM;
    else if (initialized)
        code = REPEAT_INITIALIZE;
    else if (path[0] != '/' || stat(path, &information) || !S_ISDIR(information.st_mode))
        code = INVALID_FILE;
    else {
        strcpy(result, path);
        initialized = 1;
        *written = 0;
        directories = 0;
    }
    return leave(&call, code, text);
}
#endif

#ifndef WITHOUT_SETCONFIG
static int in_range(const char *value, long most)
{
    char *end;
    long number = strtol(value, &end, 10);
    return *value && !*end && number >= 1 && number <= most;
}

static int host_systems(const char *value)
{
    char copy[257];
    char *rest, *word;
    strncpy(copy, value, sizeof copy - 1);
    copy[sizeof copy - 1] = 0;
    if (!*copy)
        return 0;
    for (word = strtok_r(copy, ",", &rest); word; word = strtok_r(NULL, ",", &rest))
        if (strcmp(word, "cpu") && strcmp(word, "mem") && strcmp(word, "disk") && strcmp(word, "network") &&
            strcmp(word, "osrt") && strcmp(word, "numa"))
            return 0;
    return 1;
}

int aclprofSetConfig(int type, const char *value, size_t length)
{
    Call call = enter("aclprofSetConfig", &calls_set);
    int code = SUCCESS, good = 1;
    char text[400];
    snprintf(text, sizeof text, "\"type\": %d, \"value\": \"%.256s\"", type, value ? value : "");
    if (call.fails)
        return leave(&call, 0, text);
    if (type < 1 || type > 16 || length > 256 || !value || strlen(value) != length)
        code = INVALID_PARAM;
    else if (started)
        code = PROF_API_CONFLICT;
    else {
        if (type == 3 || type == 5)
            good = in_range(value, 100);
        else if (type == 6)
            good = in_range(value, 50);
        else if (type == 8)
            good = host_systems(value);
        if (!good)
            code = INVALID_PROFILING_CONFIG;
    }
    return leave(&call, code, text);
}
#endif

void *aclprofCreateConfig(uint32_t *devices, uint32_t count, int metrics, const void *events, uint64_t mask)
{
    Call call = enter("aclprofCreateConfig", &calls_create);
    const char *available = getenv("STEPLENS_TEST_DEVICES");
    uint32_t most = available ? (uint32_t)atoi(available) : 8;
    Config *config = NULL;
    char text[256];
    snprintf(text, sizeof text, "\"device\": %lld, \"count\": %u, \"metrics\": %d, \"mask\": %llu",
             devices && count ? (long long)devices[0] : -1LL, count, metrics, (unsigned long long)mask);
    if (!call.fails && !events && count <= most && (count || (mask & MSPROFTX)) && (!count || (devices && devices[0] < most)) &&
        ((metrics >= 0 && metrics <= 8) || metrics == 0xFF))
        for (int i = 0; i < MOST_CONFIGS && !config; i++)
            if (!configs[i].live)
                config = &configs[i];
    if (config)
        *config = (Config){1, count ? devices[0] : 0, count, metrics, mask};
    if (call.fails)
        call.forced = 0;
    leave(&call, config ? 1 : 0, text);
    return config;
}

/* What a warm-up and a start check alike; as in CANN, a config that was never created is the caller's undoing there. */
static int may_start(const Config *config)
{
    if (!config)
        return INVALID_PARAM;
    if (config->mask & ~supported())
        return PROF_MODULES_UNSUPPORTED;
    if (!initialized)
        return PROF_NOT_RUN;
    return SUCCESS;
}

#ifndef WITHOUT_WARMUP
int aclprofWarmup(const void *handle)
{
    Call call = enter("aclprofWarmup", &calls_warmup);
    const Config *config = known(handle);
    int code;
    if (call.fails) {
        /* CANN remembers the warm-up before it tries to warm up, but not one that it cannot do at all. */
        warm = call.forced != FEATURE_UNSUPPORTED && call.forced != PROF_MODULES_UNSUPPORTED;
        return leave(&call, 0, "");
    }
    code = may_start(config);
    if (code == SUCCESS && started)
        code = PROF_API_CONFLICT;
    if (code == SUCCESS) {
        warm = recording = 1;
        begin_directory(config);
    }
    return leave(&call, code, "");
}
#endif

int aclprofStart(const void *handle)
{
    Call call = enter("aclprofStart", &calls_start);
    const Config *config = known(handle);
    int code;
    if (call.fails)
        return leave(&call, 0, "");
    code = may_start(config);
    if (code == SUCCESS && started)
        code = PROF_ALREADY_RUN;
    if (code == SUCCESS) {
        /* As in CANN: a warm-up that was never ended by a start outlives aclprofFinalize, and this start only ends it. */
        if (!warm) {
            recording = 1;
            begin_directory(config);
        }
        warm = 0;
        started = 1;
        running = config;
        started_ns = clock_ns(CLOCK_REALTIME);
    }
    return leave(&call, code, "");
}

#ifndef WITHOUT_REGISTER
int aclprofRegisterDeviceCallback(void)
{
    Call call = enter("aclprofRegisterDeviceCallback", &calls_register);
    if (call.fails)
        return leave(&call, 0, "");
    if (!started)
        return leave(&call, PROF_NOT_RUN, "");
    registered = 1;
    return leave(&call, SUCCESS, "");
}
#endif

int aclprofStop(const void *handle)
{
    Call call = enter("aclprofStop", &calls_stop);
    const Config *config = known(handle);
    int code = SUCCESS;
    if (call.fails)
        return leave(&call, 0, "");
    if (!config)
        code = INVALID_PARAM;
    else if (!started)
        code = PROF_NOT_RUN;
    else if (config != running)
        code = INVALID_PROFILING_CONFIG;
    else {
        if (recording)
            end_directory();
        started = registered = recording = 0;
        running = NULL;
    }
    return leave(&call, code, "");
}

int aclprofDestroyConfig(const void *handle)
{
    Call call = enter("aclprofDestroyConfig", &calls_destroy);
    Config *config = known(handle);
    int code = SUCCESS;
    if (call.fails)
        return leave(&call, 0, "");
    if (!config)
        code = INVALID_PARAM;
    else if (started && config == running)
        code = PROF_API_CONFLICT;
    else
        config->live = 0;
    return leave(&call, code, "");
}

int aclprofFinalize(void)
{
    Call call = enter("aclprofFinalize", &calls_finalize);
    int code = SUCCESS;
    if (call.fails)
        return leave(&call, 0, "");
    if (!initialized)
        code = PROF_NOT_RUN;
    else if (started)
        code = PROF_API_CONFLICT;
    else
        initialized = recording = 0;
    return leave(&call, code, "");
}

/* --- the list of features: C++ objects with virtual destructors, so with a pointer before each part */

typedef struct {
#ifndef PLAIN_FEATURES
    const void *record_table;
#endif
    char name[64];
#ifndef PLAIN_FEATURES
    const void *information_table;
#endif
    char compatibility[16], version[16], component[16], component_version[16], message[128];
} Feature;

static Feature list[MOST_FEATURES];

static int features(Call *call, size_t *count, void **data, int most)
{
    const char *variable = getenv("STEPLENS_TEST_FEATURES");
    char copy[1024];
    char *rest, *word;
    int filled = 0;
    if (!count || !data || *data)
        return leave(call, INVALID_PARAM, "");
    memset(list, 0, sizeof list);
    strncpy(copy, variable ? variable : "ATTR:1:2:all:all,MemoryAccess:1:1:all:all", sizeof copy - 1);
    copy[sizeof copy - 1] = 0;
    for (word = strtok_r(copy, ",", &rest); word && filled < most; word = strtok_r(NULL, ",", &rest)) {
        Feature *feature = &list[filled++];
        sscanf(word, "%63[^:]:%15[^:]:%15[^:]:%15[^:]:%15[^:]", feature->name, feature->compatibility, feature->version,
               feature->component, feature->component_version);
        snprintf(feature->message, sizeof feature->message, "It not support feature: %.63s!", feature->name);
#ifndef PLAIN_FEATURES
        feature->record_table = feature->information_table = list;
#endif
    }
    *count = (size_t)filled;
    *data = list;
    return leave(call, SUCCESS, "");
}

#ifndef WITHOUT_FEATURES
/* The first version of the call knows one feature. */
int aclprofGetSupportedFeatures(size_t *count, void **data)
{
    Call call = enter("aclprofGetSupportedFeatures", &calls_features);
    return call.fails ? leave(&call, 0, "") : features(&call, count, data, 1);
}
#endif

#ifndef WITHOUT_FEATURES_V2
int aclprofGetSupportedFeaturesV2(size_t *count, void **data)
{
    Call call = enter("aclprofGetSupportedFeaturesV2", &calls_features_v2);
    return call.fails ? leave(&call, 0, "") : features(&call, count, data, MOST_FEATURES);
}
#endif

/* --- for the tests */

#ifdef ABORTS_WHEN_LOADED
__attribute__((constructor)) static void abort_when_loaded(void)
{
    abort();
}
#endif

/* Live configs: what a caller has created and not destroyed. */
int steplens_test_leaks(void)
{
    int count = 0;
    for (int i = 0; i < MOST_CONFIGS; i++)
        count += configs[i].live;
    return count;
}

void steplens_test_reset(void)
{
    memset(configs, 0, sizeof configs);
    initialized = started = registered = warm = recording = 0;
    running = NULL;
    *written = 0;
    calls_init = calls_set = calls_create = calls_warmup = calls_start = calls_register = calls_stop = 0;
    calls_destroy = calls_finalize = calls_features = calls_features_v2 = 0;
}
