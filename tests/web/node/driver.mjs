// One headless Chromium, told what to do by JSON lines on standard input: {id, page, do, …}. The answer is one line,
// {id, ok} or {id, error}. It ends when standard input does, and must not judge what it sees.

import { createInterface } from 'node:readline';
import { AxeBuilder } from '@axe-core/playwright';
import { chromium } from 'playwright-core';

const patience = 15_000;
const browser = await chromium.launch({
  executablePath: process.env.SIGNOFF_CHROMIUM,
  headless: true,
  args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--disable-quic', '--no-first-run',
    '--disable-background-networking', '--disable-component-update', '--disable-sync'],
});
const pages = new Map();
let last = 0;

function add(context, page, scripted) {
  const here = { context, page, scripted, complaints: [], response: null };
  page.setDefaultTimeout(patience);
  page.on('console', (said) => said.type() === 'error' && here.complaints.push(`console: ${said.text()} ${said.location().url}`.trim()));
  page.on('pageerror', (error) => here.complaints.push(`script: ${error.message}`));
  page.on('response', (response) => {
    if (response.request().isNavigationRequest() && response.frame() === page.mainFrame()) here.response = response;
  });
  pages.set(++last, here);
  return last;
}

/** {css} | {role, name, exact} | {label} | {text}, and `nth` of several. */
function find({ page }, { target }) {
  const { css, role, label, text, exact, nth, inside } = target;
  const from = inside ? find({ page }, { target: inside }) : page;
  const name = target.name ?? undefined;
  const found = css ? from.locator(css)
    : role ? from.getByRole(role, { name, exact })
    : label ? from.getByLabel(label, { exact })
    : from.getByText(text, { exact });
  return nth == null ? found : found.nth(nth);
}

async function about(response) {
  return response && { status: response.status(), url: response.url(), headers: await response.allHeaders() };
}

const commands = {
  async goto(here, { url }) {
    const response = await here.page.goto(url);
    return response ? response.status() : 0;
  },
  reload: async ({ page }) => (await page.reload())?.status() ?? 0,
  back: async ({ page }) => (await page.goBack())?.status() ?? 0,
  click: (here, given) => find(here, given).click(),
  hover: (here, given) => find(here, given).hover(),
  focus: (here, given) => find(here, given).focus(),
  fill: (here, given) => find(here, given).fill(given.value),
  check: (here, given) => find(here, given).setChecked(given.on),
  select: (here, given) => find(here, given).selectOption(given.value),
  press: ({ page }, { key }) => page.keyboard.press(key),
  type: ({ page }, { value }) => page.keyboard.type(value),
  text: (here, given) => find(here, given).innerText(),
  value: (here, given) => find(here, given).inputValue(),
  attribute: (here, given) => find(here, given).getAttribute(given.name),
  count: (here, given) => find(here, given).count(),
  visible: (here, given) => find(here, given).isVisible(),
  html: ({ page }) => page.content(),
  title: ({ page }) => page.title(),
  url: ({ page }) => page.url(),
  response: ({ response }) => about(response),
  complaints: ({ complaints }) => complaints,
  wait: (here, given) => find(here, given).first().waitFor({ state: given.state, timeout: given.within ?? patience }),
  wait_url: ({ page }, { part, within }) => page.waitForURL((url) => url.href.includes(part), { timeout: within ?? patience }),
  wait_title: ({ page }, { part, within }) =>
    page.waitForFunction((part) => document.title.includes(part), part, { timeout: within ?? patience }).then(() => null),
  evaluate: ({ page }, { script }) => page.evaluate(script),
  focused: ({ page }) => page.evaluate(() => {
    const at = document.activeElement;
    const name = at?.getAttribute('aria-label') || at?.labels?.[0]?.innerText || at?.innerText || at?.getAttribute('name') || '';
    return at ? `${at.tagName.toLowerCase()} ${name.trim()}`.trim() : '';
  }),
  cookies: ({ context }) => context.cookies(),
  set_cookies: ({ context }, { cookies }) => context.addCookies(cookies),
  clear_cookies: ({ context }) => context.clearCookies(),
  offline: ({ context }, { on }) => context.setOffline(on),
  async emulate({ page }, { width, height, colorScheme, reducedMotion, forcedColors, media }) {
    if (width) await page.setViewportSize({ width, height });
    await page.emulateMedia({ colorScheme, reducedMotion, forcedColors, media });
  },
  screenshot: async ({ page }, { path, whole }) => {
    await page.screenshot({ path, fullPage: whole, animations: 'disabled', caret: 'hide' });
  },
  async download(here, given) {
    const [download] = await Promise.all([here.page.waitForEvent('download'), find(here, given).click()]);
    const parts = [];
    for await (const part of await download.createReadStream()) parts.push(part);
    return { name: download.suggestedFilename(), text: Buffer.concat(parts).toString('utf8') };
  },
  async request({ context }, { url, method, headers, form, text, redirects }) {
    const given = { method, headers, maxRedirects: redirects, failOnStatusCode: false, timeout: patience };
    if (form) given.form = form;
    if (text != null) given.data = text;
    const response = await context.request.fetch(url, given);
    const answer = { status: response.status(), url: response.url(), headers: response.headers(), text: await response.text() };
    await response.dispose();
    return answer;
  },
  async axe({ page, scripted }) {
    if (!scripted) throw new Error('axe runs in the page: open one with JavaScript');
    const { violations } = await new AxeBuilder({ page }).analyze();
    return violations.flatMap(({ id, impact, help, nodes }) =>
      nodes.map(({ target, html }) => `${id} (${impact}): ${help}, at ${target.join(' ')}: ${html}`));
  },
  tab: async ({ context, scripted }) => add(context, await context.newPage(), scripted),
  async close(here, { page }) {
    pages.delete(page);
    await here.page.close();
    if (![...pages.values()].some(({ context }) => context === here.context)) await here.context.close();
  },
};

async function open({ width, height, colorScheme, reducedMotion, javaScript, timezone, locale }) {
  const context = await browser.newContext({
    viewport: { width, height },
    colorScheme,
    reducedMotion,
    javaScriptEnabled: javaScript,
    timezoneId: timezone,
    locale,
    // The issuer's certificate is of an authority that was made for this run.
    ignoreHTTPSErrors: true,
    acceptDownloads: true,
  });
  return add(context, await context.newPage(), javaScript);
}

async function answer(command) {
  if (command.do === 'open') return open(command);
  const here = pages.get(command.page);
  if (!here) throw new Error('this page is closed');
  return commands[command.do](here, command);
}

// Whoever asked has ended, and so does this.
process.stdout.on('error', () => process.exit());
const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
say({ id: 0, ok: browser.version() });
const input = createInterface({ input: process.stdin });
input.on('line', (line) => {
  const command = JSON.parse(line);
  // Pages do not wait for each other; the commands of one page are sent one at a time.
  answer(command).then(
    (ok) => say({ id: command.id, ok: ok ?? null }),
    (error) => say({ id: command.id, error: String(error.message ?? error) }),
  );
});
input.on('close', () => browser.close());
browser.on('disconnected', () => process.exit());
