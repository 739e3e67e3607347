/* SPDX-License-Identifier: Apache-2.0 */
/* Objects, queries, and what needs no data. */
#include "setup.h"

static void test_query_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL), **again = ibv_get_device_list(NULL);
	struct ibv_context *context;
	struct ibv_device_attr attr;
	struct ibv_device_attr_ex ex;

	CHECK(list[0] && list[0] == again[0] && !strcmp(ibv_get_device_name(list[0]), "rnic0"));
	CHECK(ibv_get_device_guid(list[0]) == htobe64(0x0011223344556677));
	CHECK(ibv_get_device_index(list[0]) == 3);
	CHECK(list[0]->node_type == IBV_NODE_CA && list[0]->transport_type == IBV_TRANSPORT_IB);
	context = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	ibv_free_device_list(again);
	CHECK(!strcmp(context->device->name, "rnic0"));
	CHECK(ibv_query_device(context, &attr) == 0 && attr.max_qp == 1000);
	CHECK(!strcmp(attr.fw_ver, "fake") && attr.node_guid == htobe64(0x0011223344556677));
	CHECK(ibv_query_device_ex(context, NULL, &ex) == 0 && ex.orig_attr.max_sge == 32);
	CHECK(ex.device_cap_flags_ex == (1ull << 34 | 1 << 17) && ex.hca_core_clock == 1000000);
	CHECK(ex.phys_port_cnt_ex == 1 && ex.completion_timestamp_mask == UINT64_MAX);
	CHECK(ibv_close_device(context) == 0);
}

/* A NIC with a device of iWARP behind the one of RoCE. */
static void test_two_devices(void)
{
	int count = -1;
	struct ibv_device **list = ibv_get_device_list(&count);
	struct ibv_context *context;

	CHECK(list && count == 2 && list[0] && list[1] && !list[2]);
	CHECK(!strcmp(ibv_get_device_name(list[0]), "rnic0"));
	CHECK(list[0]->node_type == IBV_NODE_CA && list[0]->transport_type == IBV_TRANSPORT_IB);
	CHECK(!strcmp(ibv_get_device_name(list[1]), "iwarp0"));
	CHECK(list[1]->node_type == IBV_NODE_RNIC);
	CHECK(list[1]->transport_type == IBV_TRANSPORT_IWARP);
	CHECK(ibv_get_device_guid(list[1]) == htobe64(7) && ibv_get_device_index(list[1]) == 4);
	CHECK(!strcmp(list[1]->ibdev_path, "/sys/class/infiniband/iwarp0"));
	context = ibv_open_device(list[1]);
	ibv_free_device_list(list);
	CHECK(context && !strcmp(context->device->name, "iwarp0"));
	CHECK(ibv_close_device(context) == 0);
}

/* The one that the user has chosen comes first. */
static void test_chosen_device(void)
{
	int count = -1;
	struct ibv_device **list;

	setenv("RNIC_DEVICE", "iwarp0", 1);
	list = ibv_get_device_list(&count);
	CHECK(list && count == 2 && !strcmp(ibv_get_device_name(list[0]), "iwarp0"));
	CHECK(!strcmp(ibv_get_device_name(list[1]), "rnic0") && !list[2]);
	ibv_free_device_list(list);
	setenv("RNIC_DEVICE", "iwarp", 1);
	list = ibv_get_device_list(&count);
	CHECK(list && count == 2 && !strcmp(ibv_get_device_name(list[0]), "rnic0"));
	ibv_free_device_list(list);
	unsetenv("RNIC_DEVICE");
}

static void test_query_port(void)
{
	struct ibv_context *context = open_device();
	struct ibv_port_attr port;
	struct ibv_gid_entry entries[4];
	union ibv_gid gid;
	__be16 pkey;

	CHECK(ibv_query_port(context, 1, &port) == 0 && port.state == IBV_PORT_ACTIVE);
	CHECK(port.active_mtu == IBV_MTU_1024 && port.link_layer == IBV_LINK_LAYER_ETHERNET);
	CHECK(port.port_cap_flags2 == 1 << 10 && port.gid_tbl_len == 4);
	CHECK(ibv_query_port(context, 2, &port) == EINVAL);
	CHECK(ibv_query_gid(context, 1, 1, &gid) == 0 && gid.raw[12] == 192);
	CHECK(ibv_query_gid(context, 1, 0, &gid) == 0 && gid.raw[12] == 0);
	CHECK(ibv_query_gid(context, 1, 4, &gid) == -1 && errno == EINVAL);
	CHECK(ibv_query_gid(context, 1, -1, &gid) == -1);
	CHECK(ibv_query_gid_ex(context, 1, 1, &entries[0], 0) == 0);
	CHECK(entries[0].gid_type == IBV_GID_TYPE_ROCE_V2 && entries[0].ndev_ifindex == 9);
	CHECK(ibv_query_gid_ex(context, 1, 0, &entries[0], 0) == ENODATA);
	CHECK(ibv_query_gid_table(context, entries, 4, 0) == 1 && entries[0].gid_index == 1);
	CHECK(ibv_query_gid_table(context, entries, 0, 0) == -EINVAL);
	CHECK(ibv_query_gid_table(context, entries, 4, 1) == -EINVAL);
	CHECK(ibv_query_pkey(context, 1, 0, &pkey) == 0 && pkey == htons(0xffff));
	CHECK(ibv_query_pkey(context, 1, 1, &pkey) == -1);
	CHECK(ibv_get_pkey_index(context, 1, htons(0xffff)) == 0);
	CHECK(ibv_get_pkey_index(context, 1, htons(0x8001)) == -1);
	CHECK(ibv_close_device(context) == 0);
}

static void test_forbidden(void)
{
	struct setup s;

	setup_make(&s, 8);
	for (int i = 0; i < 3; i++)
		CHECK(!ibv_reg_mr(s.pd, s.buf, 13, 0) && errno == EPERM);
	setup_end(&s);
}

static void test_objects(void)
{
	struct setup s;
	struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = 10, .max_sge = 2}};
	struct ibv_srq_attr srq_attr;
	struct ibv_srq *srq;
	struct ibv_sge sge = {.addr = 1, .length = 2, .lkey = 3};
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	union ibv_gid group = {.raw = {0xff, 0x0e, [15] = 7}};
	uint32_t number;

	setup_make(&s, 8);
	CHECK(!ibv_reg_mr(s.pd, (void *)16, 100, 0) && errno == EFAULT);
	CHECK(!ibv_create_cq(s.context, 0, NULL, NULL, 0) && errno == EINVAL);
	CHECK(!ibv_create_cq(s.context, 1, NULL, NULL, 1) && errno == EINVAL);
	CHECK(ibv_resize_cq(s.cq, 0) == EINVAL && ibv_resize_cq(s.cq, 100) == 0);
	CHECK(s.cq->cqe == 128 && ibv_resize_cq(s.cq, 1) == 0 && s.cq->cqe == 1);
	srq_init.attr.srq_limit = 99; /* means nothing here */
	srq = ibv_create_srq(s.pd, &srq_init);
	CHECK(srq && srq_init.attr.max_wr == 16);
	CHECK(ibv_get_srq_num(srq, &number) == 0 && number == 99);
	CHECK(ibv_query_srq(srq, &srq_attr) == 0 && srq_attr.srq_limit == 2);
	for (int i = 0; i < 16; i++)
		CHECK(ibv_post_srq_recv(srq, &wr, &bad) == 0);
	CHECK(ibv_post_srq_recv(srq, &wr, &bad) == ENOMEM && bad == &wr);
	srq_attr.max_wr = 17;
	srq_attr.max_sge = 9;
	CHECK(ibv_modify_srq(srq, &srq_attr, IBV_SRQ_MAX_WR) == 0);
	for (int i = 0; i < 16; i++)
		CHECK(ibv_post_srq_recv(srq, &wr, &bad) == 0);
	CHECK(ibv_post_srq_recv(srq, &wr, &bad) == ENOMEM && bad == &wr);
	CHECK(ibv_destroy_srq(srq) == 0);
	srq_init.attr.max_sge = 1000;
	CHECK(!ibv_create_srq(s.pd, &srq_init) && errno == EINVAL);
	to_state(s.qp, IBV_QPS_RTS);
	CHECK(ibv_query_qp(s.qp, &attr, IBV_QP_STATE, &init) == 0);
	CHECK(attr.qp_state == IBV_QPS_RTS && init.send_cq == s.cq && init.cap.max_send_sge == 2);
	CHECK(ibv_qp_to_qp_ex(s.qp) == NULL);
	CHECK(ibv_query_ece(s.qp, NULL) == EOPNOTSUPP);
	/* The NIC of the tests takes a group once. */
	CHECK(ibv_attach_mcast(s.qp, &group, 0xc001) == 0);
	CHECK(ibv_attach_mcast(s.qp, &group, 0xc001) == EINVAL && errno == EINVAL);
	CHECK(ibv_destroy_qp(s.qp) == EBUSY && errno == EBUSY);
	CHECK(ibv_detach_mcast(s.qp, &group, 0xc001) == 0);
	CHECK(ibv_detach_mcast(s.qp, &group, 0xc001) == EINVAL && errno == EINVAL);
	CHECK(!ibv_alloc_mw(s.pd, IBV_MW_TYPE_1) && errno == EOPNOTSUPP);
	CHECK(ibv_fork_init() == 0 && ibv_is_fork_initialized() == IBV_FORK_UNNEEDED);
	setup_end(&s);
}

/* An address handle for an answer, from both forms of the 40 bytes before a datagram. */
static void test_ah_from_wc(void)
{
	struct ibv_context *context = open_device();
	struct ibv_wc wc = {.wc_flags = IBV_WC_GRH, .sl = 3};
	struct ibv_grh grh;
	struct ibv_ah_attr attr;
	unsigned char *ipv4 = (unsigned char *)&grh + 20;
	const unsigned char header[20] = {0x45, 7,   0, 60, 0, 0, 0x40, 0,   64, 17,
					  0,    0, 192, 0,  2, 9, 192,  0,   2,  1};
	unsigned char mac[6];
	uint32_t sum = 0;

	memset(&grh, 0x6a, sizeof(grh)); /* would be an IPv6 header, but for the checksum below */
	memcpy(ipv4, header, sizeof(header));
	for (int i = 0; i < 20; i += 2)
		sum += (uint32_t)header[i] << 8 | header[i + 1];
	sum = ~((sum & 0xffff) + (sum >> 16)) & 0xffff;
	ipv4[10] = (unsigned char)(sum >> 8);
	ipv4[11] = (unsigned char)sum;
	CHECK(ibv_init_ah_from_wc(context, 1, &wc, &grh, &attr) == 0);
	CHECK(attr.is_global && attr.grh.sgid_index == 1 && attr.grh.traffic_class == 7);
	CHECK(attr.grh.dgid.raw[15] == 9 && attr.grh.dgid.raw[11] == 0xff && attr.sl == 3);
	memset(&grh, 0, sizeof(grh));
	grh.version_tclass_flow = htonl(6u << 28 | 5 << 20 | 0x12345);
	grh.sgid.raw[0] = 0x20;
	memcpy(grh.dgid.raw, "\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\0\2\1", 16);
	CHECK(ibv_init_ah_from_wc(context, 1, &wc, &grh, &attr) == 0);
	CHECK(attr.grh.flow_label == 0x12345 && attr.grh.traffic_class == 5);
	CHECK(attr.grh.dgid.raw[0] == 0x20);
	grh.dgid.raw[15] = 77;
	CHECK(ibv_init_ah_from_wc(context, 1, &wc, &grh, &attr) == -1);
	attr.grh.dgid = (union ibv_gid){.raw = {0xfe, 0x80, [8] = 0x52, 0x54, 0, 0xff, 0xfe, 1, 2, 3}};
	CHECK(ibv_resolve_eth_l2_from_gid(context, &attr, mac, NULL) == 0);
	CHECK(!memcmp(mac, "\x50\x54\0\1\2\3", 6));
	CHECK(ibv_close_device(context) == 0);
}

static void test_names(void)
{
	CHECK(!strcmp(ibv_wc_status_str(IBV_WC_RETRY_EXC_ERR), "transport retry counter exceeded"));
	CHECK(!strcmp(ibv_wc_status_str((enum ibv_wc_status)999), "unknown"));
	CHECK(!strcmp(ibv_event_type_str(IBV_EVENT_DEVICE_FATAL), "local catastrophic error"));
	CHECK(!strcmp(ibv_node_type_str(IBV_NODE_UNKNOWN), "unknown"));
	CHECK(!strcmp(ibv_port_state_str(IBV_PORT_ACTIVE), "active"));
	CHECK(ibv_rate_to_mult(IBV_RATE_10_GBPS) == 4 && ibv_rate_to_mult(IBV_RATE_MAX) == -1);
	CHECK(mult_to_ibv_rate(4) == IBV_RATE_10_GBPS && mult_to_ibv_rate(3) == IBV_RATE_MAX);
	CHECK(ibv_rate_to_mbps(IBV_RATE_100_GBPS) == 103125 && ibv_rate_to_mbps(IBV_RATE_MAX) == -1);
	CHECK(mbps_to_ibv_rate(10000) == IBV_RATE_10_GBPS);
}

/* Calls everything whatever the NIC answers; only a crash or a hang is a failure. */
static void test_walk(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list && list[0] ? ibv_open_device(list[0]) : NULL;
	struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_ah_attr ah_attr = {.port_num = 1};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
	struct ibv_qp_init_attr init;
	struct ibv_device_attr device;
	struct ibv_gid_entry entries[4];
	struct ibv_srq_attr srq_attr;
	struct ibv_send_wr send = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
	struct setup s = {.context = context};
	struct ibv_srq *srq;
	struct ibv_wc wc;
	struct ibv_ah *ah;
	__be16 pkey;

	if (!context)
		return;
	ibv_query_device(context, &device);
	ibv_query_gid_table(context, entries, 4, 0);
	ibv_query_pkey(context, 1, 0, &pkey);
	s.pd = ibv_alloc_pd(context);
	s.channel = ibv_create_comp_channel(context);
	s.cq = ibv_create_cq(context, 8, NULL, s.channel, 0);
	s.mr = s.pd ? ibv_reg_mr(s.pd, s.buf, sizeof(s.buf), IBV_ACCESS_LOCAL_WRITE) : NULL;
	ah = s.pd ? ibv_create_ah(s.pd, &ah_attr) : NULL;
	srq = s.pd ? ibv_create_srq(s.pd, &srq_init) : NULL;
	init = qp_attr(&s, IBV_QPT_RC);
	s.qp = s.pd && s.cq ? ibv_create_qp(s.pd, &init) : NULL;
	if (s.qp) {
		ibv_modify_qp(s.qp, &attr, IBV_QP_STATE);
		ibv_query_qp(s.qp, &attr, 0, &init);
		ibv_post_send(s.qp, &send, &bad);
		for (int i = 0; i < 5000; i++)
			ibv_poll_cq(s.cq, 1, &wc);
		ibv_destroy_qp(s.qp);
	}
	if (srq) {
		ibv_modify_srq(srq, &srq_init.attr, IBV_SRQ_LIMIT);
		ibv_query_srq(srq, &srq_attr);
		ibv_destroy_srq(srq);
	}
	if (ah)
		ibv_destroy_ah(ah);
	if (s.mr)
		ibv_dereg_mr(s.mr);
	if (s.cq)
		ibv_destroy_cq(s.cq);
	if (s.channel)
		ibv_destroy_comp_channel(s.channel);
	if (s.pd)
		ibv_dealloc_pd(s.pd);
	ibv_close_device(context);
	ibv_free_device_list(list);
}

/* Parent and thread domains are counted; what is made in them is made in the domain behind. */
static void test_domains(void)
{
	struct setup s;
	struct ibv_td_init_attr td_attr = {0};
	struct ibv_parent_domain_init_attr attr = {0};
	struct ibv_cq_init_attr_ex cq_attr = {
		.cqe = 4,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD,
	};
	struct ibv_xrcd_init_attr xrcd_attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
	};
	struct ibv_values_ex now = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK}, later = now;
	struct ibv_pd *parent;
	struct ibv_td *td;
	struct ibv_cq_ex *cq;

	setup_make(&s, 4);
	td = ibv_alloc_td(s.context, &td_attr);
	CHECK(td);
	CHECK(!ibv_alloc_parent_domain(s.context, &attr) && errno == EINVAL);
	attr.pd = s.pd;
	attr.td = td;
	attr.comp_mask = 1 << 7;
	CHECK(!ibv_alloc_parent_domain(s.context, &attr) && errno == EOPNOTSUPP);
	attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
	parent = ibv_alloc_parent_domain(s.context, &attr);
	CHECK(parent && parent != s.pd && parent->handle == s.pd->handle);
	attr.pd = parent;
	CHECK(!ibv_alloc_parent_domain(s.context, &attr) && errno == EINVAL);
	CHECK(ibv_dealloc_td(td) == EBUSY && ibv_dealloc_pd(s.pd) == EBUSY);
	cq_attr.parent_domain = s.pd;
	CHECK(!ibv_create_cq_ex(s.context, &cq_attr) && errno == EINVAL);
	cq_attr.parent_domain = parent;
	cq = ibv_create_cq_ex(s.context, &cq_attr);
	CHECK(cq && ibv_dealloc_pd(parent) == EBUSY);
	CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0 && ibv_dealloc_pd(parent) == 0);
	CHECK(ibv_dealloc_td(td) == 0);

	CHECK(!ibv_open_xrcd(s.context, &xrcd_attr) && errno == EOPNOTSUPP);
	xrcd_attr.comp_mask = IBV_XRCD_INIT_ATTR_FD;
	CHECK(!ibv_open_xrcd(s.context, &xrcd_attr) && errno == EINVAL);

	CHECK(ibv_query_rt_values_ex(s.context, &now) == 0);
	CHECK(now.comp_mask == IBV_VALUES_MASK_RAW_CLOCK && now.raw_clock.tv_nsec > 0);
	CHECK(ibv_query_rt_values_ex(s.context, &later) == 0);
	CHECK(later.raw_clock.tv_nsec >= now.raw_clock.tv_nsec);
	setup_end(&s);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{"query_device", test_query_device},
		{"query_port", test_query_port},
		{"two_devices", test_two_devices},
		{"chosen_device", test_chosen_device},
		{"forbidden", test_forbidden},
		{"objects", test_objects},
		{"ah_from_wc", test_ah_from_wc},
		{"names", test_names},
		{"walk", test_walk},
		{"domains", test_domains},
	};

	return RUN_CASES(cases, argc, argv);
}
