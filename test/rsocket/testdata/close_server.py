"""Closes a connection that the peer has ended, when told to by a file."""
import os
import socket
import sys
import time

listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
connection, _ = listener.accept()
carrier = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
while connection.recv(100):
    pass
print("ended, by", carrier.rstrip(b"\0").decode(), flush=True)
while not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
connection.close()
print("closed", flush=True)
