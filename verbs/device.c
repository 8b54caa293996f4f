// SPDX-License-Identifier: Apache-2.0

// Devices: there is one, the NIC of the node whose socket MCASTLAB_VERBS names. sysfs is not searched.
#include "internal.h"

#include <endian.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static void drop(struct device *d)
{
	if (atomic_fetch_sub(&d->users, 1) == 1)
		free(d);
}

struct ibv_device **ibv_get_device_list(int *num)
{
	const char *path = getenv("MCASTLAB_VERBS");
	struct ibv_device **list = calloc(2, sizeof *list);
	struct device *d = calloc(1, sizeof *d);
	int sock, fds[3];
	if (num)
		*num = 0;
	if (!list || !d) {
		free(list);
		free(d);
		errno = ENOMEM;
		return NULL;
	}
	if (!path || strlen(path) >= sizeof d->path || verbs_connect(path, &sock, &d->attr, fds)) {
		free(d); // as on a machine without a device
		return list;
	}
	close(sock);
	for (int i = 0; i < 3; i++)
		close(fds[i]);
	strcpy(d->path, path);
	d->users = 1;
	d->d.node_type = IBV_NODE_CA;
	d->d.transport_type = IBV_TRANSPORT_IB;
	strcpy(d->d.name, "mcast0");
	strcpy(d->d.dev_name, "uverbs0");
	strcpy(d->d.dev_path, "/sys/class/infiniband_verbs/uverbs0");
	strcpy(d->d.ibdev_path, "/sys/class/infiniband/mcast0");
	list[0] = &d->d;
	if (num)
		*num = 1;
	return list;
}

// A device that is open outlives the list.
void ibv_free_device_list(struct ibv_device **list)
{
	if (list && list[0])
		drop((struct device *)list[0]);
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *d)
{
	return d->name;
}

int ibv_get_device_index(struct ibv_device *d)
{
	return d ? 1 : -1;
}

__be64 ibv_get_device_guid(struct ibv_device *d)
{
	return verbs_guid(&((struct device *)d)->attr);
}

static void fill_device(const struct v_device *v, struct ibv_device_attr *a)
{
	memset(a, 0, sizeof *a);
	strcpy(a->fw_ver, "mcastlab");
	a->node_guid = a->sys_image_guid = verbs_guid(v);
	a->vendor_id = 0xffffff; // no one's, as rxe says
	a->vendor_part_id = 1;
	a->hw_ver = 1;
	a->max_mr_size = v->max_mr_size;
	a->page_size_cap = 0xfffffffffffff000ull;
	a->max_qp = v->max_qp;
	a->max_qp_wr = v->max_qp_wr;
	a->device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SYS_IMAGE_GUID;
	a->max_sge = a->max_sge_rd = v->max_sge;
	a->max_pd = v->max_pd;
	a->max_ah = v->max_ah;
	a->max_cq = v->max_cq;
	a->max_mr = v->max_mr;
	a->max_srq = v->max_srq;
	a->max_cqe = v->max_cqe;
	a->max_qp_rd_atom = a->max_qp_init_rd_atom = v->max_rd_atomic;
	a->max_res_rd_atom = v->max_rd_atomic * v->max_qp;
	a->atomic_cap = IBV_ATOMIC_HCA;
	a->max_mcast_grp = v->max_mcast_groups;
	a->max_mcast_qp_attach = v->max_mcast_qp;
	a->max_total_mcast_qp_attach = v->max_mcast_groups * v->max_mcast_qp;
	a->max_srq_wr = v->max_qp_wr;
	a->max_srq_sge = v->max_sge;
	a->max_pkeys = 1;
	a->local_ca_ack_delay = 15;
	a->phys_port_cnt = 1;
}

int ibv_query_device(struct ibv_context *c, struct ibv_device_attr *a)
{
	fill_device(&context_of(c)->attr, a);
	return 0;
}

int verbs_query_device_ex(struct ibv_context *c, const struct ibv_query_device_ex_input *in, struct ibv_device_attr_ex *a, size_t size)
{
	if (in && in->comp_mask)
		return EINVAL;
	if (size < sizeof a->orig_attr)
		return EINVAL;
	memset(a, 0, size);
	fill_device(&context_of(c)->attr, &a->orig_attr);
	if (size >= offsetof(struct ibv_device_attr_ex, device_cap_flags_ex)) {
		a->completion_timestamp_mask = UINT64_MAX;
		a->hca_core_clock = 1000000; // kHz: a tick is a nanosecond of the NIC's time
	}
	if (size >= offsetof(struct ibv_device_attr_ex, device_cap_flags_ex) + sizeof a->device_cap_flags_ex)
		a->device_cap_flags_ex = a->orig_attr.device_cap_flags;
	if (size >= offsetof(struct ibv_device_attr_ex, phys_port_cnt_ex) + sizeof a->phys_port_cnt_ex)
		a->phys_port_cnt_ex = a->orig_attr.phys_port_cnt;
	return 0;
}

// The clock that completions are stamped with; as elsewhere, all its ticks are in tv_nsec.
int verbs_query_rt_values(struct ibv_context *x, struct ibv_values_ex *v)
{
	struct context *c = context_of(x);
	struct v_id m = {V_CLOCK, 0};
	struct v_clock r;
	if (v->comp_mask & ~(uint32_t)IBV_VALUES_MASK_RAW_CLOCK)
		return EOPNOTSUPP;
	int err = v->comp_mask ? verbs_call(c, &m, sizeof m, &r, sizeof r, NULL, 0) : 0;
	if (!err && v->comp_mask)
		v->raw_clock = (struct timespec){0, r.ns};
	return err;
}

static uint8_t mtu_code(uint32_t bytes)
{
	uint8_t code = IBV_MTU_256;
	while (code < IBV_MTU_4096 && (128u << (code + 1)) <= bytes)
		code++;
	return code;
}

int verbs_query_port(struct ibv_context *c, uint8_t port, struct ibv_port_attr *p, size_t size)
{
	const struct v_device *v = &context_of(c)->attr;
	struct ibv_port_attr a = {0};
	if (port != 1)
		return EINVAL;
	a.state = IBV_PORT_ACTIVE;
	a.max_mtu = a.active_mtu = mtu_code(v->mtu);
	a.gid_tbl_len = 1;
	a.port_cap_flags = IBV_PORT_CM_SUP;
	a.max_msg_sz = V_MESSAGE;
	a.pkey_tbl_len = 1;
	a.max_vl_num = 1;
	a.phys_state = 5; // LinkUp
	a.link_layer = IBV_LINK_LAYER_ETHERNET;
	verbs_speed(v->mbps, &a);
	memset(p, 0, size);
	memcpy(p, &a, size < sizeof a ? size : sizeof a);
	return 0;
}

int ibv_query_port(struct ibv_context *c, uint8_t port, struct _compat_ibv_port_attr *p)
{
	return verbs_query_port(c, port, (struct ibv_port_attr *)p, offsetof(struct ibv_port_attr, port_cap_flags2));
}

int ibv_query_gid(struct ibv_context *c, uint8_t port, int index, union ibv_gid *gid)
{
	if (port != 1 || index != 0) {
		errno = EINVAL;
		return -1;
	}
	memcpy(gid->raw, context_of(c)->attr.gid, 16);
	return 0;
}

int _ibv_query_gid_ex(struct ibv_context *c, uint32_t port, uint32_t index, struct ibv_gid_entry *e, uint32_t flags, size_t size)
{
	struct ibv_gid_entry entry = {.gid_index = index, .port_num = port, .gid_type = IBV_GID_TYPE_ROCE_V2};
	if (port != 1 || flags)
		return EINVAL;
	if (index)
		return ENODATA;
	memcpy(entry.gid.raw, context_of(c)->attr.gid, 16);
	memset(e, 0, size);
	memcpy(e, &entry, size < sizeof entry ? size : sizeof entry);
	return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *c, struct ibv_gid_entry *e, size_t max, uint32_t flags, size_t size)
{
	if (!max)
		return -EINVAL;
	int err = _ibv_query_gid_ex(c, 1, 0, e, flags, size);
	return err ? -err : 1;
}

// The numbers are those of the private enum ibv_gid_type_sysfs: 0 is IB or RoCE version 1, 1 RoCE version 2.
int ibv_query_gid_type(struct ibv_context *c, uint8_t port, unsigned index, int *type)
{
	if (port != 1 || index) {
		errno = EINVAL;
		return -1;
	}
	(void)c;
	*type = 1;
	return 0;
}

int ibv_query_pkey(struct ibv_context *c, uint8_t port, int index, __be16 *pkey)
{
	(void)c;
	if (port != 1 || index) {
		errno = EINVAL;
		return -1;
	}
	*pkey = htobe16(0xffff);
	return 0;
}

int ibv_get_pkey_index(struct ibv_context *c, uint8_t port, __be16 pkey)
{
	(void)c;
	if (port == 1 && pkey == htobe16(0xffff))
		return 0;
	errno = EINVAL;
	return -1;
}

const char *ibv_get_sysfs_path(void)
{
	return "/sys";
}

int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size)
{
	char path[512];
	if (snprintf(path, sizeof path, "%s/%s", dir, file) >= (int)sizeof path)
		return -1;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	ssize_t n = read(fd, buf, size);
	close(fd);
	if (n > 0 && buf[n - 1] == '\n')
		buf[--n] = 0;
	else if (n >= 0 && (size_t)n < size)
		buf[n] = 0;
	return n;
}
