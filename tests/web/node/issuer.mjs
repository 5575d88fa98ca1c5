// An OpenID Connect issuer on loopback for the tests: oidc-provider, with a form that takes any of its people at their word.
// It must not be reachable from elsewhere, and nothing of it is shipped.
//
// SIGNOFF_ISSUER is JSON: {port, key, certificate, secret, seconds, public, people: [{email, groups}]}.
// The form takes `email`, and of tests that want more: `groups` (with commas, for somebody who is not of the cast) and
// `seconds` (how long the id_token of this sign-in lives). `login_hint` in place of the form signs that person in at once; it is
// an address, or these fields as in a query.

import { createHash, generateKeyPairSync, randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:https';
import Provider from 'oidc-provider';

const given = JSON.parse(process.env.SIGNOFF_ISSUER);
const issuer = `https://127.0.0.1:${given.port}`;
const callbacks = /^https?:\/\/(127\.0\.0\.1|localhost)(:\d+)?\/sign-in\/callback$/;

const people = new Map();
const lifetimes = new Map();

function person(email, groups) {
  const sub = `person-${createHash('sha256').update(email).digest('hex').slice(0, 16)}`;
  if (groups || !people.has(sub)) people.set(sub, { sub, email, email_verified: true, groups: groups ?? [] });
  return sub;
}
for (const { email, groups } of given.people) person(email, groups);

const client = (id, method) => ({
  client_id: id,
  ...(method === 'none' ? {} : { client_secret: given.secret }),
  token_endpoint_auth_method: method,
  grant_types: ['authorization_code', 'refresh_token'],
  response_types: ['code'],
  redirect_uris: ['http://127.0.0.1/sign-in/callback'],
  post_logout_redirect_uris: [],
});

const key = generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey.export({ format: 'jwk' });
const provider = new Provider(issuer, {
  clients: [client('signoff', given.public ? 'none' : 'client_secret_basic'), client('other', 'client_secret_basic')],
  jwks: { keys: [{ ...key, use: 'sig', alg: 'RS256', kid: 'signoff-tests' }] },
  cookies: { keys: [randomBytes(32).toString('hex')] },
  scopes: ['openid', 'offline_access', 'email', 'groups', 'profile'],
  claims: { openid: ['sub'], email: ['email', 'email_verified'], groups: ['groups'], profile: [] },
  // The API server reads the id_token and nothing else.
  conformIdTokenClaims: false,
  pkce: { required: () => true },
  features: { devInteractions: { enabled: false }, revocation: { enabled: true } },
  interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
  findAccount: (_, sub) => people.has(sub) && { accountId: sub, claims: () => people.get(sub) },
  async loadExistingGrant(ctx) {
    const { client, session, params, result } = ctx.oidc;
    const grant = new provider.Grant({ clientId: client.clientId, accountId: session.accountId });
    grant.addOIDCScope(params.scope);
    const id = await grant.save();
    if (result?.seconds) lifetimes.set(id, result.seconds);
    return grant;
  },
  ttl: {
    IdToken: (ctx) => lifetimes.get(ctx.oidc.entities.Grant?.jti) ?? given.seconds,
    AccessToken: 3600,
    AuthorizationCode: 60,
    Grant: 24 * 3600,
    Interaction: 3600,
    RefreshToken: 24 * 3600,
    Session: 24 * 3600,
  },
});
// Each page has a port of its own, drawn long after this one began.
provider.Client.prototype.redirectUriAllowed = (uri) => callbacks.test(uri);
provider.on('server_error', (_, error) => console.error(error));
provider.on('authorization.error', (_, error) => console.error(error.message, error.error_description));
provider.on('grant.error', (_, error) => console.error(error.message, error.error_description));

const page = (uid, client) => `<!doctype html><html lang="en"><meta charset="utf-8"><title>Test issuer</title>
<main><h1>Sign in to ${client}</h1><form method="post" action="/interaction/${uid}">
<p><label>Email <input name="email" autofocus required></label></p>
<p><label>Groups <input name="groups"></label></p>
<p><label>Seconds <input name="seconds" inputmode="numeric"></label></p>
<p><button>Sign in</button> <button name="cancel" value="yes" formnovalidate>Cancel</button></p></form></main></html>`;

async function body(request) {
  const parts = [];
  for await (const part of request) parts.push(part);
  return new URLSearchParams(Buffer.concat(parts).toString());
}

const hinted = (hint) => new URLSearchParams(hint.includes('=') ? hint : { email: hint });

async function interaction(request, response) {
  const { uid, params } = await provider.interactionDetails(request, response);
  if (request.method !== 'POST' && !params.login_hint) {
    response.setHeader('content-type', 'text/html; charset=utf-8');
    return response.end(page(uid, params.client_id));
  }
  const form = request.method === 'POST' ? await body(request) : hinted(params.login_hint);
  if (form.get('cancel')) {
    const refused = { error: 'access_denied', error_description: 'the person pressed Cancel' };
    return provider.interactionFinished(request, response, refused, { mergeWithLastSubmission: false });
  }
  const groups = form.get('groups')?.split(',').map((group) => group.trim()).filter(Boolean);
  const accountId = person(form.get('email'), groups?.length ? groups : undefined);
  const result = { login: { accountId, remember: false }, seconds: Number(form.get('seconds')) || undefined };
  return provider.interactionFinished(request, response, result, { mergeWithLastSubmission: false });
}

const answer = provider.callback();
const tls = { key: readFileSync(given.key), cert: readFileSync(given.certificate) };
createServer(tls, (request, response) => {
  if (!request.url.startsWith('/interaction/')) return answer(request, response);
  return interaction(request, response).catch((error) => {
    console.error(error);
    response.statusCode = 400;
    response.end(`${error.message}\n`);
  });
}).listen(given.port, '127.0.0.1', () => console.log(`listening at ${issuer}`));
