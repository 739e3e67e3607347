/*
 * Cases of direct.c about who polls while others post.
 */
/*
 * interrupted: one thread posts what goes direct and then what the NIC does, while the thread that
 * polls is interrupted anywhere within ibv_poll_cq, for as long as both take: the order is kept.
 */
static atomic_ulong interrupted_posted, interrupted_polled;

static void interrupted_handler(int signal)
{
	const unsigned long before = atomic_load(&interrupted_posted);
	const double end = now() + 100e-6;

	(void)signal;
	while (atomic_load(&interrupted_posted) == before && now() < end)
		sched_yield();
	/* The NIC's part is seen by its completion, which is for the interrupted thread to poll. */
	for (const double shown = now() + 30e-6; now() < shown;)
		sched_yield();
}

static void *interrupted_post(void *arg)
{
	struct side *me = arg;

	for (unsigned long i = 0; i < rounds; i++) {
		for (const double end = now() + (double)(i % 8) * 4e-6; now() < end;)
			;
		require(!post(me, (struct request){.id = 2 * i, .length = 8}), "direct");
		require(!post(me, (struct request){.id = 2 * i + 1}), "nothing, by the NIC");
		atomic_store(&interrupted_posted, i + 1);
		while (atomic_load(&interrupted_polled) < 2 * i + 2)
			sched_yield();
	}
	return NULL;
}

static void interrupted_initiator(struct side *me)
{
	struct sigaction action = {.sa_handler = interrupted_handler, .sa_flags = SA_RESTART};
	pthread_t poster;
	sigset_t alarm;

	no_preparation(me);
	await(&me->board->step, 1);
	warm(me);
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	require(!pthread_sigmask(SIG_BLOCK, &alarm, NULL), "mask");
	require(!pthread_create(&poster, NULL, interrupted_post, me), "thread");
	require(!sigaction(SIGALRM, &action, NULL), "sigaction");
	require(!pthread_sigmask(SIG_UNBLOCK, &alarm, NULL), "mask");
	for (unsigned long i = 0; i < 2 * rounds; i++) {
		struct itimerval once = {.it_value = {.tv_usec = 1 + rand() % 40}};
		struct ibv_wc wc;

		if (i % 2 == 0)
			require(!setitimer(ITIMER_REAL, &once, NULL), "timer");
		wc = next(me->cq);
		require(wc.wr_id == i && wc.status == IBV_WC_SUCCESS, "%lu, not %lu",
			(unsigned long)wc.wr_id, i);
		atomic_store(&interrupted_polled, i + 1);
	}
	pthread_join(poster, NULL);
	atomic_store(&me->board->step, 2);
}

/* cancelled: threads that poll and post are cancelled, and others go on with the same queues. */
static void *cancelled_run(void *arg)
{
	struct side *me = arg;
	struct ibv_wc wc;

	for (unsigned int i = 0;; i++) {
		require(ibv_poll_cq(me->cq, 1, &wc) >= 0, "ibv_poll_cq");
		if (i % 64 == 0)
			post(me, (struct request){.length = 0});
		pthread_testcancel();
	}
	return NULL;
}

static void cancelled_initiator(struct side *me)
{
	pthread_t thread;

	no_preparation(me);
	await(&me->board->step, 1);
	warm(me);
	alarm(60);
	for (unsigned long i = 0; i < rounds; i++) {
		require(!pthread_create(&thread, NULL, cancelled_run, me), "thread");
		usleep(2000 + (useconds_t)rand() % 2000);
		require(!pthread_cancel(thread) && !pthread_join(thread, NULL), "cancel");
	}
	for (unsigned long i = 0; i < rounds; i++)
		post(me, (struct request){.length = 8});
	while (ibv_poll_cq(me->cq, 1, &(struct ibv_wc){.wr_id = 0}) > 0)
		;
	atomic_store(&me->board->step, 2);
}
