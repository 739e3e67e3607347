"""Runs test modules of rdma-core's suite and reports each test as one JSON line.

    runner.py SUITE RESULTS MODULE [DONE]

SUITE is the directory that holds the package "tests", RESULTS the file to append to, DONE a file
that names tests to leave out, one a line. A line comes before each test and one after it, so that
a test that takes the interpreter along can be told.

The suite itself stays as it is. Only its questions to the kernel about a device are answered here:
for the network interface, which it looks for among the files of a PCI device, of which an adapter
made of software has none, those of the kernel included; and, in newer suites, for partition keys.
"""

import json
import os
import socket
import sys
import unittest

suite, results, module = sys.argv[1:4]
done = set(open(sys.argv[4]).read().split()) if len(sys.argv) > 4 else set()
sys.argv[1:] = ['--dev', 'rnic0', '--port', '1']
sys.path[:0] = [suite, os.path.join(suite, 'tests')]

from args_parser import parser

parser.parse_args()

import tests.base
import tests.utils
from pyverbs.device import Context

log = os.open(results, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
parent = os.getpid()


def tell(test, result, reason=''):
    if os.getpid() == parent:  # tests fork
        line = json.dumps({'test': test, 'result': result, 'reason': reason})
        os.write(log, line.encode() + b'\n')


def add_address(self, dev, port, index):
    """Adds what a test may use: the address of the interface that the GID belongs to."""
    ip, mac = None, None
    with Context(name=dev) as ctx:
        interface = ctx.query_gid_ex(port, index).ndev_ifindex
    try:
        ip, mac = self.get_ip_mac_address(socket.if_indextoname(interface))
    except (KeyError, IndexError, OSError):
        pass
    self.args.append([dev, port, index, ip, mac])


tests.base.RDMATestCase._get_ip_mac = add_address


def pkey_of(device, port=1, index=0):
    with Context(name=device) as ctx:
        return socket.ntohs(ctx.query_pkey(port, index))


tests.utils.get_pkey_from_kernel = pkey_of


class Result(unittest.TestResult):
    def startTest(self, test):
        super().startTest(test)
        tell(test.id(), 'started')

    def addSuccess(self, test):
        tell(test.id(), 'ok')

    def addSkip(self, test, reason):
        tell(test.id(), 'skip', reason)

    def addFailure(self, test, err):
        tell(test.id(), 'fail', self._exc_info_to_string(err, test))

    def addError(self, test, err):
        tell(test.id(), 'error', self._exc_info_to_string(err, test))

    def addUnexpectedSuccess(self, test):
        tell(test.id(), 'fail', 'it should have failed')


def each(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from each(test)
        elif test.id() not in done:
            yield test


chosen = unittest.TestSuite(each(unittest.defaultTestLoader.loadTestsFromName('tests.' + module)))
chosen.run(Result())
tell('', 'end')
