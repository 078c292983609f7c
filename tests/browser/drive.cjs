// Opens a page in a real browser, uses it as a person would, and prints what happened.
//
//   node drive.cjs PLAYWRIGHT CHROMIUM page FILE
//   node drive.cjs PLAYWRIGHT CHROMIUM lab ADDRESS
//
// PLAYWRIGHT is the folder of the package playwright-core, CHROMIUM a browser. The one
// line of JSON that is printed is what test_browser.py asserts on.
"use strict";

const [playwright, executablePath, scenario, target] = process.argv.slice(2);
const { chromium } = require(playwright);
const TIMEOUT = 60000;

async function usePage(browser) {
  const context = await browser.newContext({
    offline: true, viewport: { width: 1280, height: 900 }, colorScheme: "light",
  });
  const page = await context.newPage();
  page.setDefaultTimeout(20000);
  const seen = watch(page);
  await page.goto(`file://${target}`);
  await page.waitForSelector("body[data-ready]", { timeout: TIMEOUT });

  const count = (selector) => page.locator(selector).count();
  const text = (selector) => page.locator(selector).innerText();
  const crumbs = () => page.locator("#crumbs button").allInnerTexts();
  const focused = () => page.evaluate(() => document.activeElement.getAttribute("aria-label"));
  const column = (nth) => page.locator(`#overloads tbody td:nth-child(${nth})`).allInnerTexts();
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);

  seen.boxes = await count("#calls g");
  seen.texts = await page.locator("#calls text").allTextContents();
  seen.rows = await count("#overloads tbody tr");
  seen.sums = await count("#overloads tfoot tr");
  seen.events = await count("#events g");
  seen.findings = await count(".findings li");
  seen.title = await page.title();

  // A click zooms in, a click on a crumb and Escape zoom out.
  seen.zoom = [await crumbs()];
  await page.locator('#calls g[aria-level="2"] rect').first().click();
  seen.zoom.push(await crumbs());
  seen.zoomedBoxes = await count("#calls g");
  await page.locator("#crumbs button").first().click();
  seen.zoom.push(await crumbs());
  await page.locator('#calls g[aria-level="3"] rect').first().click();
  seen.zoom.push(await crumbs());
  await page.keyboard.press("Escape");
  seen.zoom.push(await crumbs());
  await page.keyboard.press("Escape");
  seen.zoom.push(await crumbs());

  // Hovering tells the figures, and so does focus further down.
  await page.mouse.move(2, 2);
  await page.locator('#calls g[aria-level="3"] rect').first().hover();
  seen.hover = await text("#tip");
  await page.mouse.move(2, 2);
  seen.hoverGone = await page.locator("#tip").isHidden();
  // Keys walk through the boxes.
  seen.walk = [];
  await page.locator("#theme").focus();
  for (let i = 0; i < 12 && !(await page.evaluate(() => document.activeElement.matches("#calls g"))); i++) {
    await page.keyboard.press("Tab");
  }
  for (const key of ["Home", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowUp", "ArrowLeft"]) {
    await page.keyboard.press(key);
    seen.walk.push(await focused());
  }
  seen.focusTip = await text("#tip");
  await page.keyboard.press("Enter");
  seen.enter = await crumbs();
  seen.enterFocus = await focused();
  await page.keyboard.press("Escape");
  seen.escape = await crumbs();

  // Search marks, counts, filters; Enter goes to a match; Escape clears.
  await page.keyboard.press("/");
  await page.keyboard.type("float64");
  seen.hits = await text("#hits");
  seen.hitBoxes = await count("#calls g.hit");
  seen.hitEvents = await count("#events g.hit");
  seen.hitRows = await count("#overloads tbody tr");
  await page.keyboard.press("Enter");
  seen.hitFocus = await focused();
  await page.keyboard.press("Escape");
  seen.cleared = [await count("#calls g.hit"), await count("#overloads tbody tr"), await text("#hits")];

  // The table sorts both ways; a row shows where its overload ran.
  const calls = page.locator('#overloads th button[data-sort="calls"]');
  const sorted = () => page.locator("#overloads th[aria-sort]").getAttribute("aria-sort");
  seen.sort = [];
  for (let i = 0; i < 2; i++) {
    await calls.click();
    seen.sort.push([await sorted(), await column(2)]);
  }
  await page.locator('#overloads th button[data-sort="name"]').click();
  seen.sort.push([await sorted(), (await column(1)).map((cell) => cell.split("\n")[0])]);
  await page.locator("#overloads tbody td button").first().click();
  seen.picked = await count("#calls g.hit");
  await page.keyboard.press("Escape");
  seen.unpicked = await count("#calls g.hit");

  // The timeline zooms too.
  if (seen.events) {
    await page.locator("#events g rect").first().click();
    seen.zoomedEvents = await page.locator("#unzoom").isVisible();
    await page.locator("#unzoom").click();
    seen.wholeEvents = await count("#events g");
  }

  // Light and dark, chosen by hand and by the system; and it fits a small window.
  seen.colours = [await background()];
  await page.locator("#theme").click();
  seen.colours.push(await background());
  await page.locator("#theme").click();
  await page.locator("#theme").click();
  await page.emulateMedia({ colorScheme: "dark" });
  seen.colours.push(await background());
  await page.setViewportSize({ width: 800, height: 600 });
  await page.waitForTimeout(200);
  seen.overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  seen.pruned = (await page.locator("#pruned").isVisible()) ? await text("#pruned") : "";
  seen.pwned = await page.evaluate(() => typeof window.__pwned);
  seen.images = await count("img");
  return seen;
}

// Opens a notebook in JupyterLab, runs its only cell and uses what appears.
async function useLab(browser) {
  const page = await browser.newPage({ viewport: { width: 1280, height: 1000 } });
  const seen = watch(page);
  await page.goto(target, { timeout: 2 * TIMEOUT });
  const cell = page.locator(".jp-Notebook .jp-CodeCell").first();
  await cell.waitFor({ timeout: 2 * TIMEOUT });
  // A cell that is run before the kernel is there is not run at all: until it has a
  // number it is run again, unless it is running.
  const prompt = cell.locator(".jp-InputPrompt").first();
  for (let i = 0; i < 60; i++) {
    const mark = await prompt.innerText();
    if (/\d/.test(mark)) break;
    if (!mark.includes("*")) {
      await cell.locator(".cm-content").click();
      await page.keyboard.press("Shift+Enter");
    }
    await page.waitForTimeout(3000);
  }
  const started = Date.now();
  let frame = null;
  while (!frame && Date.now() - started < 3 * TIMEOUT) {
    await page.waitForTimeout(500);
    for (const candidate of page.frames()) {
      if (candidate.url() !== "about:srcdoc") continue;
      if (await candidate.locator("body[data-ready]").count()) frame = candidate;
    }
  }
  seen.shown = frame !== null;
  seen.output = frame ? "" : await page.locator(".jp-OutputArea").allInnerTexts();
  if (frame) {
    seen.boxes = await frame.locator("#calls g").count();
    seen.rows = await frame.locator("#overloads tbody tr").count();
    seen.before = await frame.locator("#crumbs button").count();
    await frame.locator('#calls g[aria-level="2"] rect').first().click();
    seen.after = await frame.locator("#crumbs button").count();
    const saving = page.waitForEvent("download", { timeout: TIMEOUT });
    await frame.locator("#save").click();
    const saved = await (await saving).createReadStream();
    let text = "";
    for await (const part of saved) text += part;
    seen.saved = [text.slice(0, 15), text.includes('id="data"'), text.includes("data-ready=")];
  }
  return seen;
}

function watch(page) {
  const seen = { errors: [], failed: [], requests: [] };
  page.on("pageerror", (error) => seen.errors.push(String(error)));
  page.on("console", (message) => {
    if (message.type() === "error") seen.errors.push(message.text());
  });
  page.on("requestfailed", (request) => seen.failed.push(request.url()));
  page.on("request", (request) => seen.requests.push(request.url()));
  return seen;
}

(async () => {
  const browser = await chromium.launch({
    executablePath,
    args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
  });
  try {
    const seen = await (scenario === "lab" ? useLab(browser) : usePage(browser));
    process.stdout.write(JSON.stringify(seen) + "\n");
  } finally {
    await browser.close();
  }
})().catch((error) => {
  process.stderr.write(`${error.stack}\n`);
  process.exit(1);
});
