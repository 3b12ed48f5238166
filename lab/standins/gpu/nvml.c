// SPDX-License-Identifier: MIT
/*
 * A stand-in for NVML: exactly the functions that nearsocket's on-host program calls through pynvml, answered from the lab's
 * description of the GPUs and from fault files. It drives nothing. Built with -DSTANDIN_VERSION="\"580.95.05\"".
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, TOO_SMALL = 7, NOT_LOADED = 9, MISMATCH = 18, UNKNOWN = 999 };

#define MOST 16
#define MIB (1024ULL * 1024)
/* What a context takes beside its data; there is no device memory here, a process's resident memory stands for it. */
#define CONTEXT_BYTES (512 * MIB)

struct device {
	int index, node, gen, width, memory_mib;
	char pci[32], uuid[64], name[96];
};
typedef struct device *nvmlDevice_t;

static struct device devices[MOST];
static struct { int a, b, level, p2p; } pairs[MOST * MOST];
static int device_count, pair_count, cuda = 13000, initialized, control = -1;

static const char *fault_path(const char *name, int index)
{
	static char path[512];
	const char *folder = getenv("NEARSOCKET_STANDIN_FAULTS");

	if (!folder)
		folder = "/run/nearsocket-standin/faults";
	if (index < 0)
		snprintf(path, sizeof(path), "%s/%s", folder, name);
	else
		snprintf(path, sizeof(path), "%s/%s-%d", folder, name, index);
	return path;
}

static int fault(const char *name, int index)
{
	return access(fault_path(name, index), F_OK) == 0;
}

static long fault_number(const char *name, int index, long otherwise)
{
	FILE *in = fopen(fault_path(name, index), "r");
	long value = otherwise;

	if (in) {
		if (fscanf(in, "%ld", &value) != 1)
			value = otherwise;
		fclose(in);
	}
	return value;
}

static void wait_while_hung(void)
{
	while (fault("nvml-hang", -1))
		usleep(100000);
}

static const char *value_of(const char *line, const char *key, char *out, size_t size)
{
	char pattern[40];
	const char *found;
	size_t length;

	snprintf(pattern, sizeof(pattern), " %s=", key);
	found = strstr(line, pattern);
	if (!found)
		return NULL;
	found += strlen(pattern);
	length = strcspn(found, " \n");
	if (length >= size)
		length = size - 1;
	memcpy(out, found, length);
	out[length] = 0;
	return out;
}

static int number_of(const char *line, const char *key, int otherwise)
{
	char text[40];

	return value_of(line, key, text, sizeof(text)) ? atoi(text) : otherwise;
}

static int level_of(const char *word)
{
	static const struct { const char *word; int level; } levels[] = { { "PIX", 10 }, { "PXB", 20 }, { "PHB", 30 }, { "NODE", 40 }, { "SYS", 50 } };
	size_t at;

	for (at = 0; at < sizeof(levels) / sizeof(*levels); at++)
		if (!strcmp(levels[at].word, word))
			return levels[at].level;
	return 50;
}

static int read_description(void)
{
	const char *path = getenv("NEARSOCKET_STANDIN_GPUS");
	char line[1024], text[64];
	FILE *in = fopen(path ? path : "/etc/nearsocket-standin/gpus.conf", "r");

	if (!in)
		return UNKNOWN;
	device_count = pair_count = 0;
	while (fgets(line, sizeof(line), in)) {
		if (!strncmp(line, "gpu ", 4) && device_count < MOST) {
			struct device *one = &devices[device_count];
			char *at;

			one->index = number_of(line, "index", 0);
			if (fault("missing", one->index))
				continue;
			one->node = number_of(line, "node", -1);
			one->gen = number_of(line, "gen", 5);
			one->width = number_of(line, "width", 16);
			one->memory_mib = number_of(line, "memory_mib", 0);
			value_of(line, "pci", one->pci, sizeof(one->pci));
			value_of(line, "uuid", one->uuid, sizeof(one->uuid));
			value_of(line, "name", one->name, sizeof(one->name));
			for (at = one->name; *at; at++)
				if (*at == '_')
					*at = ' ';
			device_count++;
		} else if (!strncmp(line, "pair ", 5) && pair_count < MOST * MOST) {
			pairs[pair_count].a = number_of(line, "a", 0);
			pairs[pair_count].b = number_of(line, "b", 0);
			pairs[pair_count].p2p = number_of(line, "p2p", 1);
			pairs[pair_count].level = value_of(line, "link", text, sizeof(text)) ? level_of(text) : 50;
			pair_count++;
		} else if (!strncmp(line, "driver ", 7)) {
			cuda = number_of(line, "cuda", cuda);
		}
	}
	fclose(in);
	return SUCCESS;
}

/* The module in memory and this library must be of one version, as with the real ones. */
static int check_module(void)
{
	char line[512] = "";
	FILE *in = fopen("/proc/driver/nvidia/version", "r");

	if (!in)
		return NOT_LOADED;
	if (!fgets(line, sizeof(line), in))
		line[0] = 0;
	fclose(in);
	return strstr(line, "  " STANDIN_VERSION "  ") ? SUCCESS : MISMATCH;
}

int nvmlInitWithFlags(unsigned int flags)
{
	int result;

	(void)flags;
	wait_while_hung();
	if (fault("version-mismatch", -1))
		return MISMATCH;
	result = getenv("NEARSOCKET_STANDIN_NO_MODULE") ? SUCCESS : check_module();
	/* The real library opens the control device too: a module that hangs keeps whoever asks in the kernel. */
	if (result == SUCCESS && !getenv("NEARSOCKET_STANDIN_NO_MODULE") && control < 0)
		control = open("/dev/nvidiactl", O_RDONLY | O_CLOEXEC);
	if (result == SUCCESS)
		result = read_description();
	initialized = result == SUCCESS;
	return result;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { initialized = 0; return SUCCESS; }

const char *nvmlErrorString(int code)
{
	switch (code) {
	case SUCCESS: return "Success";
	case UNINITIALIZED: return "Uninitialized";
	case INVALID: return "Invalid Argument";
	case NOT_SUPPORTED: return "Not Supported";
	case TOO_SMALL: return "Insufficient Size";
	case NOT_LOADED: return "Driver Not Loaded";
	case MISMATCH: return "Driver/library version mismatch";
	default: return "Unknown Error";
	}
}

static int put(char *out, unsigned int size, const char *text)
{
	if (strlen(text) >= size)
		return TOO_SMALL;
	strcpy(out, text);
	return SUCCESS;
}

#define READY do { wait_while_hung(); if (!initialized) return UNINITIALIZED; } while (0)

int nvmlSystemGetDriverVersion(char *out, unsigned int size) { READY; return put(out, size, STANDIN_VERSION); }
/* The library's own version is told by one that cannot be initialized too. */
int nvmlSystemGetNVMLVersion(char *out, unsigned int size) { return put(out, size, "13." STANDIN_VERSION); }
int nvmlSystemGetCudaDriverVersion_v2(int *out) { READY; *out = cuda; return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned int *out) { READY; *out = device_count; return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *out)
{
	READY;
	if ((int)index >= device_count)
		return INVALID;
	*out = &devices[index];
	return SUCCESS;
}

int nvmlDeviceGetName(nvmlDevice_t one, char *out, unsigned int size) { READY; return put(out, size, one->name); }
int nvmlDeviceGetUUID(nvmlDevice_t one, char *out, unsigned int size) { READY; return put(out, size, one->uuid); }

struct pci_info {
	char legacy[16];
	unsigned int domain, bus, device, ids, subsystem;
	char bus_id[32];
};

int nvmlDeviceGetPciInfo_v3(nvmlDevice_t one, struct pci_info *out)
{
	READY;
	memset(out, 0, sizeof(*out));
	sscanf(one->pci, "%x:%x:%x", &out->domain, &out->bus, &out->device);
	out->ids = 0x2bb510de;
	snprintf(out->legacy, sizeof(out->legacy), "%.15s", one->pci);
	snprintf(out->bus_id, sizeof(out->bus_id), "%08X:%02X:%02X.0", out->domain, out->bus, out->device);
	return SUCCESS;
}

#define NUMBER(function, expression) \
	int function(nvmlDevice_t one, unsigned int *out) { READY; (void)one; *out = (expression); return SUCCESS; }
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, (unsigned int)fault_number("link-gen", one->index, one->gen))
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, (unsigned int)fault_number("link-width", one->index, one->width))
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, one->gen)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, one->width)
NUMBER(nvmlDeviceGetPersistenceMode, !fault("persistence-off", one->index))
NUMBER(nvmlDeviceGetPowerUsage, 80000)

int nvmlDeviceGetEccMode(nvmlDevice_t one, int *current, int *pending)
{
	READY;
	(void)one;
	*current = *pending = 1;
	return SUCCESS;
}

/* type 0: corrected, 1: uncorrected. The fault file holds the count. */
int nvmlDeviceGetTotalEccErrors(nvmlDevice_t one, int type, int counter, unsigned long long *out)
{
	READY;
	(void)counter;
	*out = fault_number(type == 1 ? "ecc" : "ecc-corrected", one->index, 0);
	return SUCCESS;
}

int nvmlDeviceGetRemappedRows(nvmlDevice_t one, unsigned int *corrected, unsigned int *uncorrected, unsigned int *pending, unsigned int *failed)
{
	READY;
	*corrected = *failed = 0;
	*uncorrected = *pending = fault("remap-pending", one->index);
	return SUCCESS;
}

int nvmlDeviceGetTemperature(nvmlDevice_t one, int sensor, unsigned int *out)
{
	READY;
	(void)sensor;
	*out = fault("throttle", one->index) ? 92 : 36;
	return SUCCESS;
}

int nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t one, unsigned long long *out)
{
	READY;
	*out = fault("throttle", one->index) ? 0x40 | 0x8 : fault("power-cap", one->index) ? 0x4 : 0x1;
	return SUCCESS;
}

/* Bits of the CPUs in a node's list, read from this machine. */
static int node_cpus(int node, unsigned int words, unsigned long *set)
{
	char path[96];
	FILE *in;
	int first, last, mark;

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist", node);
	in = fopen(path, "r");
	if (!in)
		return NOT_SUPPORTED;
	while (fscanf(in, "%d", &first) == 1) {
		last = first;
		mark = fgetc(in);
		if (mark == '-' && fscanf(in, "%d", &last) == 1)
			mark = fgetc(in);
		for (; first <= last; first++)
			if (first / 64 < (int)words)
				set[first / 64] |= 1UL << first % 64;
		if (mark != ',')
			break;
	}
	fclose(in);
	return SUCCESS;
}

int nvmlDeviceGetCpuAffinity(nvmlDevice_t one, unsigned int words, unsigned long *set)
{
	READY;
	memset(set, 0, words * sizeof(*set));
	if (one->node < 0 || fault("nvml-node", one->index))
		return NOT_SUPPORTED;
	return node_cpus(one->node, words, set);
}

int nvmlDeviceGetMemoryAffinity(nvmlDevice_t one, unsigned int words, unsigned long *set, unsigned int scope)
{
	READY;
	(void)scope;
	memset(set, 0, words * sizeof(*set));
	if (one->node < 0 || one->node >= (int)words * 64 || fault("nvml-node", one->index))
		return NOT_SUPPORTED;
	set[one->node / 64] |= 1UL << one->node % 64;
	return SUCCESS;
}

static unsigned long long resident(const char *pid)
{
	char path[64];
	unsigned long size, pages = 0;
	FILE *in;

	snprintf(path, sizeof(path), "/proc/%s/statm", pid);
	in = fopen(path, "r");
	if (in) {
		if (fscanf(in, "%lu %lu", &size, &pages) != 2)
			pages = 0;
		fclose(in);
	}
	return pages * 4096ULL;
}

/* The minor of the GPU whose device file a descriptor is, -1 for any other file. */
static int device_of(const char *path)
{
	char target[128];
	ssize_t length = readlink(path, target, sizeof(target) - 1);
	int minor, used = 0;

	if (length <= 0)
		return -1;
	target[length] = 0;
	return sscanf(target, "/dev/nvidia%d%n", &minor, &used) == 1 && used == length ? minor : -1;
}

struct process {
	unsigned int pid;
	unsigned long long used;
	unsigned int instance, compute;
};

#define MOST_HOLDERS 256
static struct { int minor; struct process process; } found_holders[MOST_HOLDERS];
static int holder_count;
static struct timespec looked_at;

static void look_into(const char *pid)
{
	char folder[64], path[384];
	struct dirent *entry;
	unsigned int seen = 0;
	DIR *dir;

	snprintf(folder, sizeof(folder), "/proc/%s/fd", pid);
	dir = opendir(folder);
	while (dir && (entry = readdir(dir))) {
		int minor;

		snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		minor = device_of(path);
		if (minor < 0 || minor >= MOST || seen >> minor & 1 || holder_count >= MOST_HOLDERS)
			continue;
		seen |= 1U << minor;
		found_holders[holder_count].minor = minor;
		found_holders[holder_count++].process = (struct process){ atoi(pid), CONTEXT_BYTES + resident(pid), ~0U, ~0U };
	}
	if (dir)
		closedir(dir);
}

/* One look over all processes serves all GPUs for half a second: under emulation it costs. */
static void look_for_holders(void)
{
	struct dirent *entry;
	struct timespec now;
	DIR *dir;

	clock_gettime(CLOCK_MONOTONIC, &now);
	if (looked_at.tv_sec && (now.tv_sec - looked_at.tv_sec) * 1000 + (now.tv_nsec - looked_at.tv_nsec) / 1000000 < 500)
		return;
	looked_at = now;
	holder_count = 0;
	dir = opendir("/proc");
	while (dir && (entry = readdir(dir)))
		if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
			look_into(entry->d_name);
	if (dir)
		closedir(dir);
}

/* Whoever holds a GPU's device file open computes on it: the stand-in engine opens no other. Returns the bytes they use. */
static unsigned long long holders(nvmlDevice_t one, unsigned int most, struct process *out, unsigned int *count)
{
	unsigned long long used = 0;
	int at;

	look_for_holders();
	*count = 0;
	for (at = 0; at < holder_count; at++) {
		if (found_holders[at].minor != one->index)
			continue;
		if (*count < most)
			out[*count] = found_holders[at].process;
		used += found_holders[at].process.used;
		++*count;
	}
	return used;
}

int nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t one, unsigned int *count, struct process *out)
{
	unsigned int room = *count, found;

	READY;
	holders(one, out ? room : 0, out, &found);
	*count = found;
	return found > (out ? room : 0) ? TOO_SMALL : SUCCESS;
}

struct memory { unsigned long long total, free, used; };

int nvmlDeviceGetMemoryInfo(nvmlDevice_t one, struct memory *out)
{
	unsigned int count;

	READY;
	out->total = one->memory_mib * MIB;
	out->used = 600 * MIB + holders(one, 0, NULL, &count);
	out->free = out->total > out->used ? out->total - out->used : 0;
	return SUCCESS;
}

/* GPUs without NVLink: the first link is refused already. */
int nvmlDeviceGetNvLinkState(nvmlDevice_t one, unsigned int link, unsigned int *out)
{
	(void)one, (void)link, (void)out;
	READY;
	return NOT_SUPPORTED;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t one, unsigned int link, void *out)
{
	(void)one, (void)link, (void)out;
	READY;
	return NOT_SUPPORTED;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t one, unsigned int link, unsigned int *out)
{
	return nvmlDeviceGetNvLinkState(one, link, out);
}

static int pair(nvmlDevice_t one, nvmlDevice_t other)
{
	int at;

	for (at = 0; at < pair_count; at++)
		if ((pairs[at].a == one->index && pairs[at].b == other->index) || (pairs[at].b == one->index && pairs[at].a == other->index))
			return at;
	return -1;
}

int nvmlDeviceGetP2PStatus(nvmlDevice_t one, nvmlDevice_t other, int kind, int *out)
{
	int at;

	(void)kind;
	READY;
	at = pair(one, other);
	if (at < 0)
		return INVALID;
	*out = pairs[at].p2p;
	return SUCCESS;
}

int nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t other, int *out)
{
	int at;

	READY;
	at = pair(one, other);
	if (at < 0)
		return INVALID;
	*out = pairs[at].level;
	return SUCCESS;
}
