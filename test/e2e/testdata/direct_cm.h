/*
 * Connecting by rdma_cm, for direct.h: iWARP knows no other way. Identifiers without a channel wait
 * for their events.
 */
static void listen_for_peer(struct side *me)
{
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};

	if (me->listener)
		return;
	require(!rdma_create_id(NULL, &me->listener, NULL, RDMA_PS_TCP), "rdma_create_id");
	require(!rdma_bind_addr(me->listener, (struct sockaddr *)&any), "rdma_bind_addr");
	require(!rdma_listen(me->listener, 1), "rdma_listen");
	me->board->port = ntohs(rdma_get_src_port(me->listener));
}

static void connect_by_cm(struct side *me)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)},
				 .sin_port = htons(me->board->port)};
	struct rdma_conn_param param = {.responder_resources = 16, .initiator_depth = 16,
					.qp_num = me->qp->qp_num};

	if (me->id)
		require(!rdma_destroy_id(me->id), "rdma_destroy_id");
	if (me->which == 1) {
		require(!rdma_get_request(me->listener, &me->id), "rdma_get_request");
		require(!rdma_accept(me->id, &param), "rdma_accept: %s", strerror(errno));
	} else {
		require(!rdma_create_id(NULL, &me->id, NULL, RDMA_PS_TCP), "rdma_create_id");
		require(!rdma_resolve_addr(me->id, NULL, (struct sockaddr *)&to, 2000), "address");
		require(!rdma_resolve_route(me->id, 2000), "rdma_resolve_route");
		require(!rdma_connect(me->id, &param), "rdma_connect: %s", strerror(errno));
	}
	atomic_store(&me->board->ends[me->which].round, 2 * me->round);
	await(&me->board->ends[!me->which].round, 2 * me->round);
}
