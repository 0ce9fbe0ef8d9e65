// A box's egress: takes connections on one address and passes their bytes to fixed targets, as many as a box can need.
// usage: node forward.mjs ADDRESS PORT=HOST:PORT...
import net from "node:net";

const MAX_CONNECTIONS = 64;
const CONNECT_MILLISECONDS = 10_000;
const [address, ...ways] = process.argv.slice(2);
let open = 0;

function serve(port, host, targetPort) {
  const server = net.createServer({ allowHalfOpen: true, noDelay: true }, (inner) => {
    if (open >= MAX_CONNECTIONS) return inner.destroy();
    open += 1;
    const outer = net.connect({ host, port: targetPort, allowHalfOpen: true, noDelay: true });
    const timer = setTimeout(() => outer.destroy(), CONNECT_MILLISECONDS);
    let over = false;
    const end = () => {
      if (over) return;
      over = true;
      open -= 1;
      clearTimeout(timer);
      inner.destroy();
      outer.destroy();
    };
    outer.on("connect", () => clearTimeout(timer));
    inner.on("error", end).on("close", end);
    outer.on("error", end).on("close", end);
    inner.pipe(outer);
    outer.pipe(inner);
  });
  server.on("error", (error) => {
    console.error(`forward: ${port}: ${error.code}`);
    process.exit(1);
  });
  server.listen({ port, host: address, exclusive: true });
}

for (const way of ways) {
  const [, port, host, targetPort] = /^(\d+)=([0-9a-fA-F.:]+):(\d+)$/.exec(way);
  serve(Number(port), host, Number(targetPort));
}
for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => process.exit(0));
