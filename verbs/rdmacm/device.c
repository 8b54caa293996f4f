// SPDX-License-Identifier: Apache-2.0

// The connection to the NIC's side, and the device that all identifiers of the program have.
#include "cm.h"

#include <unistd.h>

static struct {
	pthread_mutex_t lock, calls;
	int open, sock, fds[3];
	pid_t pid; // that has opened it: after a fork the child needs another
	struct v_device attr;
	struct ibv_context *verbs;
	struct ibv_pd *pd;
} nic = {.lock = PTHREAD_MUTEX_INITIALIZER, .calls = PTHREAD_MUTEX_INITIALIZER};

// cm_fail returns what the calls do: -1 and errno, or 0.
int cm_fail(int err)
{
	if (!err)
		return 0;
	errno = err;
	return -1;
}

int cm_open(void)
{
	const char *path = getenv("MCASTLAB_VERBS");
	int err = 0;
	pthread_mutex_lock(&nic.lock);
	if (nic.open && nic.pid != getpid()) {
		close(nic.sock);
		for (int i = 0; i < 3; i++)
			close(nic.fds[i]);
		nic.open = 0;
		nic.verbs = NULL; // the parent's
		nic.pd = NULL;
	}
	if (!nic.open) {
		err = path ? verbs_connect(path, &nic.sock, &nic.attr, nic.fds) : ENODEV;
		nic.open = !err;
		nic.pid = getpid();
	}
	pthread_mutex_unlock(&nic.lock);
	return err;
}

const struct v_device *cm_device(void)
{
	return &nic.attr;
}

// cm_call returns 0 or an errno.
int cm_call(const void *request, size_t size, void *reply, size_t reply_size, int *fds, int nfds)
{
	int err = cm_open();
	if (err)
		return err;
	pthread_mutex_lock(&nic.calls);
	err = verbs_exchange(nic.sock, request, size, -1, reply, reply_size, fds, nfds);
	pthread_mutex_unlock(&nic.calls);
	return err;
}

int cm_simple(uint32_t op, uint32_t id)
{
	struct v_id m = {op, id};
	struct v_reply r;
	return cm_call(&m, sizeof m, &r, sizeof r, NULL, 0);
}

int cm_value(uint32_t op, uint32_t id, uint32_t value)
{
	struct v_cm_value m = {op, id, value};
	struct v_reply r;
	return cm_call(&m, sizeof m, &r, sizeof r, NULL, 0);
}

// cm_verbs returns the device, which stays open until the program ends, or NULL.
struct ibv_context *cm_verbs(void)
{
	if (cm_open())
		return NULL;
	pthread_mutex_lock(&nic.lock);
	if (!nic.verbs) {
		struct ibv_device **list = ibv_get_device_list(NULL);
		if (list && list[0])
			nic.verbs = ibv_open_device(list[0]);
		if (list)
			ibv_free_device_list(list);
		if (nic.verbs)
			nic.pd = ibv_alloc_pd(nic.verbs);
	}
	pthread_mutex_unlock(&nic.lock);
	return nic.verbs;
}

// cm_pd returns the protection domain of those that name none.
struct ibv_pd *cm_pd(void)
{
	return nic.pd;
}

struct ibv_context **rdma_get_devices(int *num)
{
	struct ibv_context **list = calloc(2, sizeof *list);
	if (num)
		*num = 0;
	if (!list) {
		errno = ENOMEM;
		return NULL;
	}
	list[0] = cm_verbs();
	if (list[0] && num)
		*num = 1;
	return list;
}

void rdma_free_devices(struct ibv_context **list)
{
	free(list);
}
