/* Simulates a broken disk: the first EIO_TIMES attempts to open a folder whose path contains EIO_OPENDIR fail. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

DIR *opendir(const char *name)
{
    static long failed;
    const char *part = getenv("EIO_OPENDIR"), *times = getenv("EIO_TIMES");
    if (part && times && strstr(name, part) && failed < atol(times)) {
        failed++;
        errno = EIO;
        return NULL;
    }
    DIR *(*real)(const char *) = (DIR *(*)(const char *))dlsym(RTLD_NEXT, "opendir");
    return real(name);
}
