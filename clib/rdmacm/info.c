/* SPDX-License-Identifier: Apache-2.0 */
/* Names to addresses. */
#include <netdb.h>
#include <unistd.h>

#include "cm.h"

static const struct rdma_addrinfo info_no_hints = {.ai_port_space = RDMA_PS_TCP};

/* Copies an address. Returns 0 or an EAI code. */
static int info_copy(struct sockaddr **to, socklen_t *to_bytes, const void *from, socklen_t bytes)
{
	*to = malloc(bytes);
	if (!*to)
		return EAI_MEMORY;
	memcpy(*to, from, bytes);
	*to_bytes = bytes;
	return 0;
}

/* Settles what a program left open about the kind of service. */
static int info_set_kind(struct rdma_addrinfo *out, const struct rdma_addrinfo *hints)
{
	out->ai_qp_type = hints->ai_qp_type;
	out->ai_port_space = hints->ai_port_space;
	if (!out->ai_port_space)
		out->ai_port_space = hints->ai_qp_type == IBV_QPT_UD ? RDMA_PS_UDP : RDMA_PS_TCP;
	if (!out->ai_qp_type) {
		bool datagrams = out->ai_port_space == RDMA_PS_UDP ||
				 out->ai_port_space == RDMA_PS_IPOIB;

		out->ai_qp_type = datagrams ? IBV_QPT_UD : IBV_QPT_RC;
	}
	if ((out->ai_port_space == RDMA_PS_TCP && out->ai_qp_type == IBV_QPT_UD) ||
	    (out->ai_port_space == RDMA_PS_UDP && out->ai_qp_type != IBV_QPT_UD))
		return EAI_SOCKTYPE;
	return 0;
}

/*
 * Finds the source address that the host would take. Having none is no error here: resolving the
 * address will say why.
 */
static int info_find_source(struct rdma_addrinfo *out)
{
	struct sockaddr_storage source;
	socklen_t bytes = sizeof(source);
	int error = 0;
	int fd = socket(out->ai_dst_addr->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return 0;
	if (connect(fd, out->ai_dst_addr, out->ai_dst_len) == 0 &&
	    getsockname(fd, (struct sockaddr *)&source, &bytes) == 0) {
		/* The port is that of this socket, which means nothing. */
		if (source.ss_family == AF_INET)
			((struct sockaddr_in *)&source)->sin_port = 0;
		else
			((struct sockaddr_in6 *)&source)->sin6_port = 0;
		error = info_copy(&out->ai_src_addr, &out->ai_src_len, &source, bytes);
	}
	close(fd);
	return error;
}

static int info_fill(struct rdma_addrinfo *out, const struct rdma_addrinfo *hints,
		     const struct addrinfo *found)
{
	int error = info_set_kind(out, hints);

	out->ai_flags = hints->ai_flags;
	out->ai_family = found->ai_family;
	if (error)
		return error;
	if (hints->ai_flags & RAI_PASSIVE) {
		if (found->ai_canonname && !(out->ai_src_canonname = strdup(found->ai_canonname)))
			return EAI_MEMORY;
		return info_copy(&out->ai_src_addr, &out->ai_src_len, found->ai_addr,
				 found->ai_addrlen);
	}
	if (found->ai_canonname && !(out->ai_dst_canonname = strdup(found->ai_canonname)))
		return EAI_MEMORY;
	error = info_copy(&out->ai_dst_addr, &out->ai_dst_len, found->ai_addr, found->ai_addrlen);
	if (error)
		return error;
	if (hints->ai_src_len && hints->ai_src_addr)
		return info_copy(&out->ai_src_addr, &out->ai_src_len, hints->ai_src_addr,
				 hints->ai_src_len);
	return info_find_source(out);
}

/* Copies an address that a program gave, unless it gave none. */
static int info_copy_given(struct rdma_addrinfo *out, struct sockaddr **to, socklen_t *to_bytes,
			   const struct sockaddr *from, socklen_t bytes)
{
	if (!from || !bytes)
		return 0;
	if (bytes < sizeof(from->sa_family) || addr_bytes(from) == 0)
		return EAI_FAMILY;
	if (bytes < addr_bytes(from))
		return EAI_NONAME;
	out->ai_family = from->sa_family;
	return info_copy(to, to_bytes, from, addr_bytes(from));
}

/*
 * Takes the addresses that a program gave instead of names. One that gave none either gets its
 * hints back, as rdma-core does it: it is the endpoint made of them that fails.
 */
static int info_given(const struct rdma_addrinfo *hints, struct rdma_addrinfo **list)
{
	struct rdma_addrinfo *out = calloc(1, sizeof(*out));
	int error;

	*list = out;
	if (!out)
		return EAI_MEMORY;
	out->ai_flags = hints->ai_flags;
	out->ai_family = hints->ai_family;
	error = info_set_kind(out, hints);
	if (!error)
		error = info_copy_given(out, &out->ai_src_addr, &out->ai_src_len,
					hints->ai_src_addr, hints->ai_src_len);
	if (!error && !(hints->ai_flags & RAI_PASSIVE))
		error = info_copy_given(out, &out->ai_dst_addr, &out->ai_dst_len,
					hints->ai_dst_addr, hints->ai_dst_len);
	if (!error && !out->ai_src_addr && out->ai_dst_addr)
		error = info_find_source(out);
	return error;
}

/* Makes an element of the list for each address that was found. */
static int info_list(const struct rdma_addrinfo *hints, const struct addrinfo *found,
		     struct rdma_addrinfo **out)
{
	for (; found; found = found->ai_next) {
		int error;

		if (addr_bytes(found->ai_addr) == 0)
			continue;
		*out = calloc(1, sizeof(**out));
		if (!*out)
			return EAI_MEMORY;
		error = info_fill(*out, hints, found);
		if (error)
			return error;
		out = &(*out)->ai_next;
	}
	return 0;
}

static int info_look_up(const char *node, const char *service, const struct rdma_addrinfo *hints,
			struct rdma_addrinfo **out)
{
	struct addrinfo wanted = {
		.ai_family = hints->ai_family,
		.ai_socktype = hints->ai_port_space == RDMA_PS_UDP ||
			       hints->ai_qp_type == IBV_QPT_UD ? SOCK_DGRAM : SOCK_STREAM,
	};
	struct addrinfo *found;
	int error;

	if (hints->ai_flags & RAI_PASSIVE)
		wanted.ai_flags |= AI_PASSIVE;
	if (hints->ai_flags & RAI_NUMERICHOST)
		wanted.ai_flags |= AI_NUMERICHOST;
	else if (node)
		wanted.ai_flags |= AI_CANONNAME;
	error = getaddrinfo(node, service, &wanted, &found);
	if (error)
		return error;
	error = info_list(hints, found, out);
	freeaddrinfo(found);
	return error ? error : *out ? 0 : EAI_FAMILY;
}

CM_API int rdma_getaddrinfo(const char *node, const char *service,
			    const struct rdma_addrinfo *hints, struct rdma_addrinfo **res)
{
	const int known = RAI_PASSIVE | RAI_NUMERICHOST | RAI_NOROUTE | RAI_FAMILY;
	struct rdma_addrinfo *list = NULL;
	int error;

	if (!res || (!node && !service && !hints))
		return cm_result(EINVAL);
	if (!hints)
		hints = &info_no_hints;
	if (hints->ai_flags & ~known)
		return EAI_BADFLAGS;
	if (node || service)
		error = info_look_up(node, service, hints, &list);
	else
		error = info_given(hints, &list);
	if (error) {
		rdma_freeaddrinfo(list);
		return error;
	}
	*res = list;
	return 0;
}

CM_API void rdma_freeaddrinfo(struct rdma_addrinfo *res)
{
	while (res) {
		struct rdma_addrinfo *next = res->ai_next;

		free(res->ai_src_addr);
		free(res->ai_dst_addr);
		free(res->ai_src_canonname);
		free(res->ai_dst_canonname);
		free(res->ai_route);
		free(res->ai_connect);
		free(res);
		res = next;
	}
}
