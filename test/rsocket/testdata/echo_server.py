"""Echoes, by one process per connection: forked, or another program that is handed the socket."""
import socketserver
import subprocess
import sys


class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536):
            self.request.sendall(data)


class Forking(socketserver.ForkingTCPServer):
    request_queue_size = 32


class Executing(socketserver.TCPServer):
    request_queue_size = 32

    def process_request(self, request, client_address):
        subprocess.Popen(["cat"], stdin=request.fileno(), stdout=request.fileno())
        request.close()


server = {"fork": Forking, "exec": Executing}[sys.argv[1]]
server(("0.0.0.0", int(sys.argv[2])), Echo).serve_forever()
