/* A stand-in for CANN's libascend_dump.so: it writes down one operator where the two calls of the operator statistics are right.
 *
 * Environment: STEPLENS_TEST_DUMP_FAIL is the code that aclopStartDumpArgs returns; it does nothing then.
 * Compile with -DWITHOUT_DUMP to leave the calls out. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[4096];

#ifndef WITHOUT_DUMP
int aclopStartDumpArgs(uint32_t type, const char *path)
{
    const char *fails = getenv("STEPLENS_TEST_DUMP_FAIL");
    if (fails)
        return atoi(fails);
    if (type != 1 || folder[0])
        return 100000;
    snprintf(folder, sizeof folder, "%s/%d", path, (int)getpid());
    return 0;
}

int aclopStopDumpArgs(uint32_t type)
{
    if (type != 1 || !folder[0])
        return 100000;
    char file[4200];
    snprintf(file, sizeof file, "%s/MatMul_0.json", folder);
    mkdir(folder, 0750);
    folder[0] = 0;
    FILE *out = fopen(file, "w");
    if (!out)
        return 100003;
    fputs("{\"op_type\": \"MatMul\"}", out);
    return fclose(out);
}
#else
int nothing(void) { return folder[0]; }
#endif
