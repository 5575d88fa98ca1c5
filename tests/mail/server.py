"""A mail server on loopback that keeps what it takes in a folder, as a mail (.eml) and with its envelope (.json), and behaves as
the recipient's name says.

refused@  is refused for good
busy@     is refused for now
dies@     is taken, and the connection ends before the answer, once
endless@  gets a line without end for an answer
"""

import asyncio
import json
import os
import ssl
import sys
from pathlib import Path

from aiosmtpd.smtp import SMTP, AuthResult

GIVEN = json.loads(os.environ["SIGNOFF_MAIL_SERVER"])
FOLDER = Path(GIVEN["folder"])
# Far more than any operator should keep of an answer.
ENDLESS = 256


class Handler:
    def __init__(self):
        self.number = 0
        self.died = False

    async def handle_RCPT(self, server, session, envelope, address, options):
        name = address.split("@")[0]
        if name == "refused":
            return "550 5.1.1 <" + address + ">: no such mailbox"
        if name == "busy":
            return "451 4.2.1 <" + address + ">: try again later"
        if name == "endless":
            for _ in range(ENDLESS):
                server.transport.write(b"x" * (1 << 20))
                await server._writer.drain()
            await asyncio.sleep(3600)
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        self.number += 1
        mail = {
            "from": envelope.mail_from,
            "to": envelope.rcpt_tos,
            "tls": session.ssl is not None,
            "user": session.auth_data,
            "text": envelope.content.decode("utf-8", "replace"),
        }
        (FOLDER / f"{self.number:06}.eml").write_bytes(envelope.content)
        unfinished = FOLDER / ".unfinished"
        unfinished.write_text(json.dumps(mail))
        unfinished.rename(FOLDER / f"{self.number:06}.json")
        if not self.died and any(to.startswith("dies@") for to in envelope.rcpt_tos):
            self.died = True
            # The answer goes nowhere.
            server.transport.abort()
        return "250 OK"


def authenticate(server, session, envelope, mechanism, data):
    user, password = data.login.decode(), data.password.decode()
    is_right = (user, password) == (GIVEN["user"], GIVEN["password"])
    return AuthResult(success=is_right, handled=False, auth_data=user)


async def main():
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(GIVEN["certificate"], GIVEN["key"])
    handler = Handler()

    def connection():
        return SMTP(
            handler,
            hostname="localhost",
            tls_context=context,
            require_starttls=True,
            auth_required=True,
            auth_require_tls=True,
            authenticator=authenticate,
        )

    server = await asyncio.get_running_loop().create_server(connection, "127.0.0.1", GIVEN["port"])
    print("listening", file=sys.stderr, flush=True)
    async with server:
        await server.serve_forever()


asyncio.run(main())
