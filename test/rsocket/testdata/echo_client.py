"""Sends bytes, shuts its end down, and wants the same bytes back; over several connections."""
import os
import socket
import sys
import threading

address = (sys.argv[1], int(sys.argv[2]))


def talk():
    with socket.create_connection(address) as s:
        data = os.urandom(1000000)

        def send():
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        got = bytearray()
        while piece := s.recv(100000):
            got += piece
        sender.join()
        assert got == data, f"{len(got)} bytes came back"
        assert s.getpeername() == address


threads = [threading.Thread(target=talk) for _ in range(int(sys.argv[3]))]
failures = []
threading.excepthook = lambda args: failures.append(args.exc_value)
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit(f"{failures}" if failures else 0)
