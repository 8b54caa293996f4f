// SPDX-License-Identifier: Apache-2.0

// threads SEED: a program of random threads that wait for each other in every way that libmcasttime.so serves. It is drawn as one order of
// steps, each of a thread, or of two of which the later waits for the earlier. So every step can be done once those before it have been: if the
// program hangs, the library or the node has made it hang. What it prints is when each step was done.
#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 6, STEPS = 48, MUTEXES = 3 };
enum kind { LOCK, NEST, RWLOCK, SLEEP, NAP, TIMED, TIMED_SEM, SPIN, ONCE, BUSY, WRITE_POLL, WRITE_EVENT, BARRIER, CHILD, // of one thread
	SEM, COND, SHARED, PIPE, PIPE_POLL, SOCKET, FLAG, MEMORY, TRY, C11, EVENT, KINDS }; // of two

struct nic {
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char bytes[128];
};

struct step {
	enum kind kind;
	int giver, taker; // taker is -1 where there is none
	unsigned draw;
	sem_t sem;
	pthread_mutex_t own;
	pthread_cond_t cond;
	mtx_t m;
	cnd_t c;
	int fds[2];
	volatile int flag;
	int value;
	struct nic nic;
};

static struct step steps[STEPS];
static int count, threads;
static pthread_mutex_t mutexes[MUTEXES] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER}, shared = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER, all = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t spinlock;
static pthread_barrier_t barrier;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static sem_t empty;
static int held, onces;
static struct nic nics[THREADS];
static struct ibv_context *device;
static uint64_t state;

static unsigned draw(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state >> 16;
}

static long long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec - 1000000000000ll;
}

static void check(int ok, const char *what)
{
	if (!ok) {
		printf("%s: %s\n", what, strerror(errno));
		fflush(stdout);
		_exit(3);
	}
}

#define CHECK(x) check(x, #x)

static void nap(long ns)
{
	struct timespec t = {0, ns};
	nanosleep(&t, NULL);
}

static struct timespec in(long ns)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_nsec += ns;
	t.tv_sec += t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	return t;
}

static void enter(int i)
{
	CHECK(!pthread_mutex_lock(&mutexes[i]));
	CHECK(!(held & 1 << i));
	held |= 1 << i;
}

static void leave(int i)
{
	held &= ~(1 << i);
	CHECK(!pthread_mutex_unlock(&mutexes[i]));
}

static void begin_once(void)
{
	nap(3000);
	onces++;
}

static void *child(void *arg)
{
	struct step *s = arg;
	nap(s->draw % 20000);
	enter(s->draw % MUTEXES);
	s->value++;
	leave(s->draw % MUTEXES);
	return s;
}

static int child11(void *arg)
{
	child(arg);
	return 7;
}

// connect_self makes a queue pair that is connected to itself.
static void connect_self(struct nic *n)
{
	union ibv_gid gid;
	CHECK((n->pd = ibv_alloc_pd(device)) && (n->channel = ibv_create_comp_channel(device)) && (n->cq = ibv_create_cq(device, 16, NULL, n->channel, 0)));
	struct ibv_qp_init_attr i = {.send_cq = n->cq, .recv_cq = n->cq, .cap = {8, 8, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	CHECK((n->qp = ibv_create_qp(n->pd, &i)) && (n->mr = ibv_reg_mr(n->pd, n->bytes, sizeof n->bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));
	CHECK(!ibv_query_gid(device, 1, 0, &gid));
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
	CHECK(!ibv_modify_qp(n->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = n->qp->qp_num, .min_rnr_timer = 12,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .hop_limit = 64}}};
	CHECK(!ibv_modify_qp(n->qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
	CHECK(!ibv_modify_qp(n->qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void send_write(struct nic *n)
{
	struct ibv_sge e = {(uintptr_t)n->bytes, 64, n->mr->lkey};
	struct ibv_send_wr *bad, w = {.sg_list = &e, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, .wr.rdma = {(uintptr_t)n->bytes + 64, n->mr->rkey}};
	CHECK(!ibv_post_send(n->qp, &w, &bad));
}

static void take_completion(struct nic *n)
{
	struct ibv_wc w;
	int k;
	while (!(k = ibv_poll_cq(n->cq, 1, &w)))
		;
	CHECK(k == 1 && w.status == IBV_WC_SUCCESS);
}

static void take_event(struct nic *n)
{
	struct ibv_cq *q;
	void *x;
	CHECK(!ibv_get_cq_event(n->channel, &q, &x));
	ibv_ack_cq_events(q, 1);
}

// give does what a thread alone does, or what another waits for.
static void give(struct step *s, int me)
{
	pthread_t t;
	thrd_t t11;
	void *v;
	int a = s->draw % MUTEXES, b = s->draw / MUTEXES % MUTEXES, value;
	long ns = s->draw % 50000;
	struct timespec until;
	switch (s->kind) {
	case LOCK:
		enter(a);
		nap(ns);
		leave(a);
		break;
	case NEST:
		enter(a < b ? a : b);
		if (a != b)
			enter(a < b ? b : a);
		nap(ns);
		leave(a);
		if (a != b)
			leave(b);
		break;
	case RWLOCK:
		CHECK(!(s->draw & 1 ? pthread_rwlock_wrlock : pthread_rwlock_rdlock)(&rw));
		nap(ns);
		CHECK(!pthread_rwlock_unlock(&rw));
		break;
	case SLEEP:
		usleep(ns / 100);
		break;
	case NAP:
		for (int i = 0; i < 5; i++)
			nap(0);
		break;
	case TIMED:
		CHECK(!pthread_mutex_lock(&mutexes[a]));
		until = in(ns);
		while (pthread_cond_timedwait(&never, &mutexes[a], &until) != ETIMEDOUT)
			;
		CHECK(!pthread_mutex_unlock(&mutexes[a]));
		break;
	case TIMED_SEM:
		until = in(ns);
		CHECK(sem_timedwait(&empty, &until) && errno == ETIMEDOUT);
		break;
	case SPIN:
		CHECK(!pthread_spin_lock(&spinlock));
		nap(ns);
		CHECK(!pthread_spin_unlock(&spinlock));
		break;
	case ONCE:
		CHECK(!pthread_once(&once, begin_once) && onces == 1);
		break;
	case BUSY:
		for (long long end = now() + ns / 10; now() < end;)
			;
		break;
	case WRITE_POLL:
		send_write(&nics[me]);
		take_completion(&nics[me]);
		break;
	case WRITE_EVENT:
		CHECK(!ibv_req_notify_cq(nics[me].cq, 0));
		send_write(&nics[me]);
		take_event(&nics[me]);
		take_completion(&nics[me]);
		break;
	case BARRIER:
		value = pthread_barrier_wait(&barrier);
		CHECK(!value || value == PTHREAD_BARRIER_SERIAL_THREAD);
		break;
	case CHILD:
		if (s->draw & 64) {
			CHECK(thrd_create(&t11, child11, s) == thrd_success && thrd_join(t11, &value) == thrd_success && value == 7 && s->value == 1);
		} else {
			CHECK(!pthread_create(&t, NULL, child, s) && !pthread_join(t, &v) && v == s && s->value == 1);
		}
		break;
	case SEM:
		CHECK(!sem_post(&s->sem));
		break;
	case COND:
		CHECK(!pthread_mutex_lock(&s->own));
		s->flag = 1;
		CHECK(!pthread_cond_signal(&s->cond) && !pthread_mutex_unlock(&s->own));
		break;
	case SHARED:
		CHECK(!pthread_mutex_lock(&shared));
		s->flag = 1;
		CHECK(!pthread_cond_broadcast(&all) && !pthread_mutex_unlock(&shared));
		break;
	case PIPE:
	case PIPE_POLL:
	case SOCKET:
		CHECK(write(s->fds[1], "x", 1) == 1);
		break;
	case TRY:
	case FLAG:
	case MEMORY:
		s->flag = 1;
		break;
	case C11:
		CHECK(mtx_lock(&s->m) == thrd_success);
		s->flag = 1;
		CHECK(cnd_signal(&s->c) == thrd_success && mtx_unlock(&s->m) == thrd_success);
		break;
	case EVENT:
		CHECK(!ibv_req_notify_cq(s->nic.cq, 0));
		send_write(&s->nic);
		break;
	case KINDS:
		break;
	}
}

// take waits for what another thread gives.
static void take(struct step *s)
{
	char b;
	struct pollfd p = {s->fds[0], POLLIN, 0};
	switch (s->kind) {
	case SEM:
		CHECK(!sem_wait(&s->sem));
		break;
	case COND:
		CHECK(!pthread_mutex_lock(&s->own));
		if (!s->flag) // and not while: nobody else signals
			CHECK(!pthread_cond_wait(&s->cond, &s->own));
		CHECK(s->flag && !pthread_mutex_unlock(&s->own));
		break;
	case SHARED:
		CHECK(!pthread_mutex_lock(&shared));
		while (!s->flag)
			CHECK(!pthread_cond_wait(&all, &shared));
		CHECK(!pthread_mutex_unlock(&shared));
		break;
	case PIPE_POLL:
		while (!poll(&p, 1, s->draw & 1 ? -1 : 1))
			;
		// fall through
	case PIPE:
	case SOCKET:
		CHECK(read(s->fds[0], &b, 1) == 1);
		break;
	case FLAG:
		while (!s->flag)
			sched_yield();
		break;
	case MEMORY:
		while (!s->flag)
			;
		break;
	case TRY:
		for (int done = 0; !done;)
			if (!pthread_mutex_trylock(&shared)) {
				done = s->flag;
				CHECK(!pthread_mutex_unlock(&shared));
				usleep(10);
			}
		break;
	case C11:
		CHECK(mtx_lock(&s->m) == thrd_success);
		if (!s->flag)
			CHECK(cnd_wait(&s->c, &s->m) == thrd_success);
		CHECK(s->flag && mtx_unlock(&s->m) == thrd_success);
		break;
	case EVENT:
		take_event(&s->nic);
		take_completion(&s->nic);
		break;
	default:
		break;
	}
}

struct line {
	int step, taker;
	long long ns;
};

static struct line lines[THREADS][2 * STEPS];
static int written[THREADS];

static void *thread(void *arg)
{
	int me = (intptr_t)arg;
	for (int i = 0; i < count; i++) {
		struct step *s = &steps[i];
		if (s->kind == BARRIER || s->giver == me)
			give(s, me);
		else if (s->taker == me)
			take(s);
		else
			continue;
		lines[me][written[me]++] = (struct line){i, s->taker == me, now()};
	}
	return NULL;
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	state = strtoull(argv[1], NULL, 10) * 0x9e3779b97f4a7c15 + 1;
	for (int i = 0; i < 8; i++)
		draw();
	threads = 2 + draw() % (THREADS - 1);
	count = 4 + draw() % (STEPS - 3);
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list && list[0] && (device = ibv_open_device(list[0])));
	for (int i = 0; i < threads; i++)
		connect_self(&nics[i]);
	CHECK(!pthread_spin_init(&spinlock, 0) && !pthread_barrier_init(&barrier, NULL, threads) && !sem_init(&empty, 0, 0));
	for (int i = 0; i < count; i++) {
		struct step *s = &steps[i];
		s->kind = draw() % KINDS;
		if (s->kind == MEMORY && draw() % 8) // it takes milliseconds of the processor's time
			s->kind = FLAG;
		s->draw = draw();
		s->giver = draw() % threads;
		s->taker = s->kind < SEM ? -1 : (int)((s->giver + 1 + draw() % (threads - 1)) % threads);
		CHECK(!sem_init(&s->sem, 0, 0) && !pthread_mutex_init(&s->own, NULL) && !pthread_cond_init(&s->cond, NULL));
		CHECK(mtx_init(&s->m, mtx_plain) == thrd_success && cnd_init(&s->c) == thrd_success);
		if (s->kind == EVENT)
			connect_self(&s->nic);
		if (s->kind == SOCKET)
			CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, s->fds));
		else if (s->kind == PIPE || s->kind == PIPE_POLL)
			CHECK(!pipe(s->fds));
		else
			s->fds[0] = -1;
	}
	pthread_t t[THREADS];
	for (intptr_t i = 1; i < threads; i++)
		CHECK(!pthread_create(&t[i], NULL, thread, (void *)i));
	thread(NULL);
	for (int i = 1; i < threads; i++)
		CHECK(!pthread_join(t[i], NULL));
	for (int i = 0; i < threads; i++)
		for (int k = 0; k < written[i]; k++)
			printf("thread %d %s step %d of kind %d at %lld ns\n", i, lines[i][k].taker ? "takes" : "does", lines[i][k].step, steps[lines[i][k].step].kind, lines[i][k].ns);
	printf("done at %lld ns\n", now());
	return 0;
}
