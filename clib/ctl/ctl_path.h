/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RNIC_CTL_PATH_H
#define RNIC_CTL_PATH_H

struct sockaddr_un;

/* Fills in the address of the NIC's socket. Returns 0 or an errno. */
int ctl_path_find(struct sockaddr_un *addr);

#endif
