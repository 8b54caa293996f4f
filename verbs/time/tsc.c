// SPDX-License-Identifier: Apache-2.0

// The processor's time stamp counter. The kernel makes rdtsc fault (PR_SET_TSC), and the handler returns the value that the counter
// would have in lab time. The fault is per thread, and children and new programs inherit it; a new program would die of it before
// this library is loaded, so it is switched off around every call that starts one.
#include "time.h"

#include <stdarg.h>
#include <sys/prctl.h>

static int trapping;            // 1: this process's SIGSEGV is ours
static struct sigaction theirs; // what the program has set for it

#if defined(__x86_64__)
#include <elf.h>
#include <stdatomic.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <ucontext.h>

static uintptr_t vdso, vdso_end;
static _Atomic uint64_t per_ns; // cycles per nanosecond, as the bits of a double

static uint64_t counter(void)
{
	uint32_t low, high;
	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
	return (uint64_t)high << 32 | low;
}

static int set(int how)
{
	return prctl(PR_SET_TSC, how, 0, 0, 0);
}

// raw reads the counter itself, in a thread that may not.
static uint64_t raw(void)
{
	set(PR_TSC_ENABLE);
	uint64_t t = counter();
	set(PR_TSC_SIGSEGV);
	return t;
}

// pair reads the server's clock and the counter, of a few times when the least came between the two: the thread may have
// lost its processor there. The counter must not be trapped.
static struct pair {
	int64_t mono;
	uint64_t tsc;
} first;

static struct pair pair(void)
{
	struct pair best = {0, 0};
	int64_t least = INT64_MAX;
	for (int i = 0; i < 10; i++) {
		int64_t before = mono_now();
		uint64_t t = counter();
		int64_t took = mono_now() - before;
		if (took < least) {
			least = took;
			best = (struct pair){before + took / 2, t};
		}
	}
	return best;
}

// frequency measures, once, over at least two milliseconds of this process's life.
static double frequency(void)
{
	uint64_t bits = atomic_load(&per_ns), none = 0;
	if (!bits) {
		while (mono_now() - first.mono < 2000000)
			;
		set(PR_TSC_ENABLE);
		struct pair now = pair();
		set(PR_TSC_SIGSEGV);
		double f = (double)(now.tsc - first.tsc) / (now.mono - first.mono);
		memcpy(&bits, &f, sizeof bits);
		if (!atomic_compare_exchange_strong(&per_ns, &none, bits))
			bits = none;
	}
	double f;
	memcpy(&f, &bits, sizeof f);
	return f;
}

// emulate does an rdtsc or rdtscp that has faulted, and reports whether it was one.
static int emulate(ucontext_t *u)
{
	greg_t *r = u->uc_mcontext.gregs;
	const uint8_t *at = (const uint8_t *)r[REG_RIP];
	int length = at[0] != 0x0f ? 0 : at[1] == 0x31 ? 2 : at[1] == 0x01 && at[2] == 0xf9 ? 3 : 0;
	if (!length)
		return 0;
	uintptr_t ip = (uintptr_t)at;
	// The vDSO makes the server's time of it, for the C library itself.
	uint64_t t = ip >= vdso && ip < vdso_end ? raw() : (uint64_t)(lab_ps_at(mono_now()) / 1000 * frequency());
	r[REG_RAX] = (uint32_t)t;
	r[REG_RDX] = t >> 32;
	if (length == 3) {
		unsigned cpu = 0, node = 0;
		syscall(SYS_getcpu, &cpu, &node, NULL);
		r[REG_RCX] = node << 12 | cpu;
	}
	r[REG_RIP] += length;
	return 1;
}

// pass gives the program a fault of its own, as the kernel would.
static void pass(int sig, siginfo_t *info, void *context)
{
	ucontext_t *u = context;
	struct sigaction a = theirs;
	if (!(a.sa_flags & SA_SIGINFO) && a.sa_handler == SIG_IGN && info->si_code <= 0)
		return; // another process has sent it
	if (!(a.sa_flags & SA_SIGINFO) && (a.sa_handler == SIG_DFL || a.sa_handler == SIG_IGN)) {
		a = (struct sigaction){.sa_handler = SIG_DFL};
		real.sigaction(sig, &a, NULL);
		if (info->si_code <= 0)
			raise(sig); // it does not come again by itself
		return;
	}
	if (a.sa_flags & (int)SA_RESETHAND)
		theirs = (struct sigaction){.sa_handler = SIG_DFL};
	real.pthread_sigmask(SIG_BLOCK, &a.sa_mask, NULL); // the return from the signal takes it back
	if (a.sa_flags & SA_SIGINFO)
		a.sa_sigaction(sig, info, u);
	else
		a.sa_handler(sig);
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	int err = errno;
	if (info->si_code != SI_KERNEL || !emulate(context))
		pass(sig, info, context);
	errno = err;
}

static volatile sig_atomic_t probed;

static void probe(int sig, siginfo_t *info, void *context)
{
	(void)sig, (void)info;
	((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2; // over rdtsc
	probed = 1;
}

// trapped tries it: on some virtual machines the kernel sets the processor's flag, and the counter is read all the same.
static int trapped(void)
{
	counter();
	return probed;
}

void tsc_trap(void)
{
	const Elf64_Ehdr *e = (const Elf64_Ehdr *)getauxval(AT_SYSINFO_EHDR);
	if (e) {
		const Elf64_Phdr *p = (const Elf64_Phdr *)((const char *)e + e->e_phoff);
		vdso = (uintptr_t)e;
		for (int i = 0; i < e->e_phnum; i++)
			if (p[i].p_type == PT_LOAD && vdso + p[i].p_offset + p[i].p_memsz > vdso_end)
				vdso_end = vdso + p[i].p_offset + p[i].p_memsz;
	}
	first = pair();
	struct sigaction ours = {.sa_sigaction = probe, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK | SA_RESTART};
	sigset_t fault;
	sigemptyset(&fault);
	sigaddset(&fault, SIGSEGV);
	real.pthread_sigmask(SIG_UNBLOCK, &fault, NULL); // who starts a program may have blocked it
	const char *why = NULL;
	if (real.sigaction(SIGSEGV, &ours, &theirs) || set(PR_TSC_SIGSEGV))
		why = strerror(errno);
	else if (!trapped())
		why = "the kernel says that it is, and the processor reads it";
	if (why) {
		set(PR_TSC_ENABLE);
		real.sigaction(SIGSEGV, &theirs, NULL);
		fprintf(stderr, "mcastlab: process %d: rdtsc shows the server's time, since it cannot be trapped: %s\n", getpid(), why);
		return;
	}
	ours.sa_sigaction = on_fault;
	trapping = 1;
	real.sigaction(SIGSEGV, &ours, NULL);
}

static void off(void)
{
	if (trapping)
		set(PR_TSC_ENABLE);
}

static void on(void)
{
	int err = errno;
	if (trapping)
		set(PR_TSC_SIGSEGV);
	errno = err;
}
#else
void tsc_trap(void)
{
}

static void off(void)
{
}

static void on(void)
{
}
#endif

// While the signal of the trap is blocked the kernel would end the program.
sigset_t tsc_open(const sigset_t *mask)
{
	sigset_t s = *mask;
	if (trapping)
		sigdelset(&s, SIGSEGV);
	return s;
}

int sigaction(int sig, const struct sigaction *restrict a, struct sigaction *restrict old)
{
	lab_on();
	if (sig == SIGSEGV && trapping) {
		struct sigaction was = theirs;
		if (a) {
			theirs = *a;
			theirs.sa_mask = tsc_open(&a->sa_mask);
		}
		if (old)
			*old = was;
		return 0;
	}
	struct sigaction b;
	if (a) {
		b = *a;
		b.sa_mask = tsc_open(&a->sa_mask);
	}
	int r = real.sigaction(sig, a ? &b : NULL, old);
	if (!r && a)
		signals_set(sig, &b);
	return r;
}

__sighandler_t signal(int sig, __sighandler_t handler)
{
	lab_on();
	struct sigaction old, a = {.sa_handler = handler, .sa_flags = SA_RESTART};
	return sigaction(sig, &a, &old) ? SIG_ERR : old.sa_handler;
}

int sigprocmask(int how, const sigset_t *restrict mask, sigset_t *restrict old)
{
	lab_on();
	if (!mask || how == SIG_UNBLOCK)
		return real.sigprocmask(how, mask, old);
	sigset_t s = tsc_open(mask);
	return real.sigprocmask(how, &s, old);
}

int pthread_sigmask(int how, const sigset_t *restrict mask, sigset_t *restrict old)
{
	lab_on();
	if (!mask || how == SIG_UNBLOCK)
		return real.pthread_sigmask(how, mask, old);
	sigset_t s = tsc_open(mask);
	return real.pthread_sigmask(how, &s, old);
}

// While a thread starts a program its rdtsc shows the server's time.
#define STARTING(type, call) \
	do { \
		lab_on(); \
		off(); \
		type r = call; \
		on(); \
		return r; \
	} while (0)

int execve(const char *path, char *const argv[], char *const env[])
{
	STARTING(int, real.execve(path, argv, env));
}

int execvpe(const char *file, char *const argv[], char *const env[])
{
	STARTING(int, real.execvpe(file, argv, env));
}

int fexecve(int fd, char *const argv[], char *const env[])
{
	STARTING(int, real.fexecve(fd, argv, env));
}

int execv(const char *path, char *const argv[])
{
	return execve(path, argv, environ);
}

int execvp(const char *file, char *const argv[])
{
	return execvpe(file, argv, environ);
}

// spawned says of a process that it was started.
static int spawned(int err, const pid_t *own, pid_t *pid)
{
	if (!err)
		turns_started(*own);
	if (!err && pid)
		*pid = *own;
	return err;
}

int posix_spawn(pid_t *restrict pid, const char *restrict path, const posix_spawn_file_actions_t *restrict actions, const posix_spawnattr_t *restrict attr,
	char *const argv[restrict], char *const env[restrict])
{
	pid_t own;
	STARTING(int, spawned(real.posix_spawn(&own, path, actions, attr, argv, env), &own, pid));
}

int posix_spawnp(pid_t *restrict pid, const char *restrict file, const posix_spawn_file_actions_t *restrict actions,
	const posix_spawnattr_t *restrict attr, char *const argv[restrict], char *const env[restrict])
{
	pid_t own;
	STARTING(int, spawned(real.posix_spawnp(&own, file, actions, attr, argv, env), &own, pid));
}

int system(const char *command)
{
	if (lab_on() && turns_on())
		return turns_system(command);
	STARTING(int, real.system(command));
}

FILE *popen(const char *command, const char *mode)
{
	if (lab_on() && turns_on())
		return turns_popen(command, mode);
	STARTING(FILE *, real.popen(command, mode));
}

// The arguments of these are a list that NULL ends, and may be followed by the environment.
#define LISTED(name, how, with_env) \
	int name(const char *path, const char *arg, ...) \
	{ \
		va_list l; \
		int n = 1; \
		va_start(l, arg); \
		while (va_arg(l, char *)) \
			n++; \
		va_end(l); \
		char *argv[n + 1]; \
		argv[0] = (char *)arg; \
		va_start(l, arg); \
		for (int i = 1; i <= n; i++) \
			argv[i] = va_arg(l, char *); \
		char *const *env = with_env ? va_arg(l, char *const *) : environ; \
		va_end(l); \
		return how(path, argv, env); \
	}

LISTED(execl, execve, 0)
LISTED(execlp, execvpe, 0)
LISTED(execle, execve, 1)
