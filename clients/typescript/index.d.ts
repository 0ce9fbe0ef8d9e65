import type { EventView, JobEnded, JobSummary, JobView, JobWaits, Operations, Problem } from "./types.js";

export type * from "./types.js";

/** The API answered with a problem (RFC 9457). */
export class ApiError extends Error {
  problem: Problem;
  /** Seconds after which it is worth another try; null where the answer names none. */
  retryAfter: number | null;
}

/** There was no answer, or it broke off. Whether the request took effect is unknown. */
export class UnreachableError extends Error {}

/** A message that claims to be a webhook is none: its signature or time is wrong. */
export class WebhookRefusedError extends Error {}

export interface ClientOptions {
  /** Of the API, such as `https://pointsman.example.com`. */
  url: string;
  /** An API key (`pointsman key create`); it names the tenant. */
  key: string;
  /** How often a call is tried altogether; default 5. */
  tries?: number;
  /** For one answer; default 30. */
  timeoutSeconds?: number;
  /** An answer that asks for more throws at once; default 60. */
  longestPauseSeconds?: number;
}

/**
 * Pointsman over HTTP.
 *
 * Calls are repeated where that can do no harm: after 429 and 503 when the answer says so, and after a cut for what
 * only reads or carries an idempotency key. Whoever gives none gets one for each call, so a cut submits no job twice.
 */
export class Client {
  constructor(options: ClientOptions);
  /** Yield the tenant's jobs, newest first, page by page. */
  iterateJobs(filter?: Omit<NonNullable<Parameters<Operations["listJobs"]>[0]>, "cursor" | "limit">): AsyncGenerator<JobSummary>;
  /** Yield a job's events as they happen until it has ended. A cut stream goes on where it was. */
  followJob(jobId: string, options?: { after?: number }): AsyncGenerator<EventView>;
  /** Return a job once it has ended or waits for a person (`awaiting_approval`, `clarifying`). */
  waitForJob(jobId: string, options?: { timeoutSeconds?: number }): Promise<JobView>;
}
export interface Client extends Operations {}

/**
 * Return what a webhook says (https://www.standardwebhooks.com), once its signature and time are right.
 *
 * @param secret as `pointsman webhook secret` prints it
 * @param body exactly as it arrived
 */
export function verifyWebhook(
  secret: string,
  headers: Headers | Record<string, string | string[] | undefined>,
  body: string | Uint8Array,
): JobEnded | JobWaits;
