// SPDX-License-Identifier: MIT
/*
 * A stand-in for CUDA's driver library: the calls that say how many GPUs a process may use. It computes nothing.
 * Built with -DSTANDIN_VERSION="\"580.95.05\"". Codes: CUDA's driver API, CUresult.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, NOT_INITIALIZED = 3, NO_DEVICE = 100, MISMATCH = 803, UNKNOWN = 999 };

#define MOST 16

static int found, initialized;

static const char *place(const char *variable, const char *otherwise)
{
	const char *said = getenv(variable);

	return said ? said : otherwise;
}

/* The first line of a file, "" where there is none. */
static const char *first_line(const char *path, char *out, int size)
{
	FILE *in = fopen(path, "r");

	out[0] = 0;
	if (in) {
		if (!fgets(out, size, in))
			out[0] = 0;
		fclose(in);
	}
	return out;
}

/* Planted: a driver whose CUDA does not come up, by its version; seen by processes that use it and by nothing else. */
static int planted(void)
{
	char path[512], line[64];

	snprintf(path, sizeof(path), "%s/no-cuda", place("NEARSOCKET_STANDIN_FAULTS", "/run/nearsocket-standin/faults"));
	first_line(path, line, sizeof(line));
	line[strcspn(line, "\n")] = 0;
	return !strcmp(line, STANDIN_VERSION);
}

int cuInit(unsigned int flags)
{
	char path[512], line[512];
	int index, node;

	(void)flags;
	found = initialized = 0;
	first_line(place("NEARSOCKET_STANDIN_MODULE", "/proc/driver/nvidia/version"), line, sizeof(line));
	if (!line[0])
		return NO_DEVICE;
	if (!strstr(line, "  " STANDIN_VERSION "  "))
		return MISMATCH;
	if (planted())
		return UNKNOWN;
	for (index = 0; index < MOST; index++) {
		snprintf(path, sizeof(path), "%s/nvidia%d", place("NEARSOCKET_STANDIN_NODES", "/dev"), index);
		node = open(path, O_RDWR | O_CLOEXEC);
		if (node < 0)
			continue;
		close(node);
		found++;
	}
	if (!found)
		return NO_DEVICE;
	initialized = 1;
	return SUCCESS;
}

int cuDeviceGetCount(int *count)
{
	if (!initialized)
		return NOT_INITIALIZED;
	*count = found;
	return SUCCESS;
}

int cuDriverGetVersion(int *version)
{
	*version = 13000;
	return SUCCESS;
}
