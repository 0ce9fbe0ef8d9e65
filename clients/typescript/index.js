import { createHmac, randomUUID, timingSafeEqual } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import { OPERATIONS } from "./operations.js";

/** The API answered with a problem (RFC 9457). */
export class ApiError extends Error {
  constructor(problem, retryAfter) {
    const fields = (problem.errors ?? []).map(({ field, rule }) => `${field}: ${rule}`).join("; ");
    super(`${problem.status} ${problem.detail}${fields && fields !== problem.detail ? ` (${fields})` : ""}`);
    this.name = "ApiError";
    this.problem = problem;
    this.retryAfter = retryAfter;
  }
}

/** There was no answer, or it broke off. Whether the request took effect is unknown. */
export class UnreachableError extends Error {
  name = "UnreachableError";
}

/** A message that claims to be a webhook is none. */
export class WebhookRefusedError extends Error {
  name = "WebhookRefusedError";
}

const NEVER_SENT = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "UND_ERR_CONNECT_TIMEOUT"]);
const NO_PROBLEM = { type: "about:blank", title: "", errors: [] };
// A key begins with the time: keys in order cost the server's index less.
const newKey = () => `${Date.now().toString(16).padStart(12, "0")}-${randomUUID()}`;
const withKey = (fields) => ({ ...fields, idempotency_key: fields.idempotency_key ?? newKey() });

/** Pointsman over HTTP; its types are in index.d.ts. */
export class Client {
  #url;
  #key;
  #tries;
  #timeout;
  #longestPause;

  constructor({ url, key, tries = 5, timeoutSeconds = 30, longestPauseSeconds = 60 }) {
    this.#url = url.replace(/\/+$/, "");
    this.#key = key;
    this.#tries = tries;
    this.#timeout = timeoutSeconds * 1000;
    this.#longestPause = longestPauseSeconds;
  }

  async *iterateJobs(filter = {}) {
    let cursor = null;
    do {
      const page = await this.listJobs({ ...filter, cursor, limit: 200 });
      yield* page.jobs;
      cursor = page.next_cursor;
    } while (cursor !== null);
  }

  async *followJob(jobId, { after = 0 } = {}) {
    for (let failures = 0; ; ) {
      let wait = 1;
      const cut = new AbortController();
      try {
        const init = { headers: { ...this.#headers(), "last-event-id": String(after) }, signal: cut.signal };
        const answer = await within(this.#timeout, fetch(`${this.#url}/v1/jobs/${jobId}/events`, init));
        if (answer.status === 204) return;
        if (!answer.ok) wait = this.#pauseAfter(answer, await answer.text(), (failures += 1), true);
        else {
          failures = 0; // a job may be quiet for longer than a call may take
          for await (const event of eventsOf(answer.body, this.#timeout)) {
            after = event.id;
            wait = 0;
            yield event;
          }
        }
      } catch (error) {
        wait = this.#pauseAfterCut(error, (failures += 1), true);
      } finally {
        cut.abort();
      }
      await pause(wait * 1000);
    }
  }

  async waitForJob(jobId, { timeoutSeconds = Infinity } = {}) {
    const until = performance.now() + timeoutSeconds * 1000;
    for (let number = 1; ; number += 1) {
      const job = await this.getJob(jobId);
      if (job.is_final || job.state === "awaiting_approval" || job.state === "clarifying") return job;
      const left = until - performance.now();
      if (left <= 0) throw new Error(`job ${jobId} is ${job.state} after ${timeoutSeconds} seconds`);
      await pause(Math.min(100 * number, 2000, left));
    }
  }

  async _call({ method, path, query, hasBody, takesFile, takesKey, isBinary }, given) {
    const places = path.match(/{\w+}/g) ?? [];
    const url = places.reduce((text, place, index) => text.replace(place, encodeURIComponent(given[index])), path);
    let fields = given[places.length] ?? {};
    const asked = new URLSearchParams();
    for (const name of query) for (const value of [fields[name] ?? []].flat()) asked.append(name, value);
    if (fields.jobs) fields = { ...fields, jobs: fields.jobs.map(withKey) };
    else if (takesKey) fields = withKey(fields);
    const body = takesFile ? given[places.length + 1] : hasBody ? JSON.stringify(fields) : undefined;
    const kind = takesFile
      ? { "content-type": "application/octet-stream", "idempotency-key": fields.idempotency_key }
      : hasBody && { "content-type": "application/json" };
    const isRepeatable = method === "GET" || takesKey === true;
    for (let number = 1; ; number += 1) {
      let wait;
      try {
        const answer = await fetch(`${this.#url}${url}${asked.size ? `?${asked}` : ""}`, {
          method,
          body,
          headers: { ...this.#headers(), ...kind },
          signal: AbortSignal.timeout(this.#timeout),
        });
        if (answer.ok) return isBinary ? await answer.arrayBuffer() : await answer.json();
        wait = this.#pauseAfter(answer, await answer.text(), number, isRepeatable);
      } catch (error) {
        wait = this.#pauseAfterCut(error, number, isRepeatable);
      }
      await pause(wait * 1000);
    }
  }

  #headers() {
    return { authorization: `Bearer ${this.#key}` };
  }

  /** Return the seconds until another try, or throw the answer's error. */
  #pauseAfter(answer, text, number, isRepeatable) {
    const asked = Number(answer.headers.get("retry-after") ?? NaN);
    const mayRepeat = answer.status === 429 || (answer.status === 503 && isRepeatable);
    if (mayRepeat && number < this.#tries && asked <= this.#longestPause) return asked;
    const problem = problemOf(text) ?? { ...NO_PROBLEM, status: answer.status, detail: text.slice(0, 200) };
    throw new ApiError(problem, Number.isNaN(asked) ? null : asked);
  }

  /** Return the seconds until another try, or throw that there was no answer. */
  #pauseAfterCut(error, number, isRepeatable) {
    if (error instanceof ApiError) throw error;
    const wasNeverSent = NEVER_SENT.has(error.cause?.code);
    if (number >= this.#tries || !(isRepeatable || wasNeverSent)) {
      throw new UnreachableError(`${this.#url}: ${error.message}`, { cause: error });
    }
    return Math.min(0.25 * 2 ** number, this.#longestPause);
  }
}

for (const [name, operation] of Object.entries(OPERATIONS)) {
  Client.prototype[name] = function (...given) {
    return this._call(operation, given);
  };
}

/** Return the problem that an answer states; null for a proxy's, which need not be one. */
function problemOf(text) {
  try {
    const found = JSON.parse(text);
    return typeof found?.detail === "string" && found.status ? { errors: [], ...found } : null;
  } catch {
    return null;
  }
}

/** The server says something every 15 seconds: a stream that is silent for longer than a call may take is cut. */
async function* eventsOf(stream, milliseconds) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await within(milliseconds, reader.read());
    if (done) return;
    const blocks = (rest + value).split(/\r?\n\r?\n/);
    rest = blocks.pop();
    for (const block of blocks) {
      const data = block.match(/^data: ?(.*)$/m);
      if (data) yield JSON.parse(data[1]);
    }
  }
}

async function within(milliseconds, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer within ${milliseconds / 1000} seconds`)), milliseconds);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Return what a webhook says (https://www.standardwebhooks.com), once its signature and time are right. */
export function verifyWebhook(secret, headers, body) {
  const given = headers instanceof Headers ? [...headers] : Object.entries(headers);
  const found = Object.fromEntries(given.map(([name, value]) => [name.toLowerCase(), String(value)]));
  const at = found["webhook-timestamp"] ?? "";
  const key = Buffer.from(secret.replace(/^whsec_/, ""), "base64");
  if (key.length === 0) throw new Error("the secret must be as `pointsman webhook secret` prints it");
  const wanted = createHmac("sha256", key).update(`${found["webhook-id"]}.${at}.`).update(body).digest();
  const isRight = (found["webhook-signature"] ?? "").split(" ").some((signature) => {
    const given = Buffer.from(signature.replace(/^v1,/, ""), "base64");
    return signature.startsWith("v1,") && given.length === wanted.length && timingSafeEqual(given, wanted);
  });
  if (!isRight) throw new WebhookRefusedError("the signature is wrong");
  if (!/^\d+$/.test(at) || Math.abs(Date.now() / 1000 - Number(at)) > 300)
    throw new WebhookRefusedError("the time is too far from now");
  return JSON.parse(String(body));
}
