import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import express from 'express';
import request from 'supertest';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { contract, packageFolder } from '../src/contract.js';
import { docs } from '../src/docs.js';

const app = express()
  .use(docs())
  .use((_request, response) => {
    response.status(404).json({ from: 'the API' });
  });

describe('the documentation', () => {
  test('is where the root leads', async () => {
    const answer = await request(app).get('/').expect(303);
    expect(new URL(String(answer.headers.location), 'http://host/').pathname).toBe('/docs');
  });

  test('is at /docs, and /docs/ leads there', async () => {
    const answer = await request(app)
      .get('/docs')
      .expect(200)
      .expect('Content-Type', /^text\/html/);
    expect(answer.text).toContain('<title>Branded Phone Numbers</title>');
    const slash = await request(app).get('/docs/').expect(303);
    expect(new URL(String(slash.headers.location), 'http://host/docs/').pathname).toBe('/docs');
  });

  test('finds every file that it refers to, on this host and at relative addresses', async () => {
    const { text } = await request(app).get('/docs');
    const references = [...text.matchAll(/(?:src|href)="([^"]*)"/g)].map((match) => match[1] ?? '');
    expect(references.length).toBeGreaterThan(5);
    for (const reference of references) {
      expect(reference).not.toMatch(/^\/|:/);
      await request(app).get(`/${reference}`).expect(200);
    }
  });

  test('does not serve the demo page of Swagger UI', async () => {
    await request(app).get('/docs/index.html').expect(404);
    await request(app).get('/docs/swagger-initializer.js').expect(404);
  });

  test('allows scripts, styles and requests of this host only', async () => {
    const { headers } = await request(app).get('/docs');
    const policy = String(headers['content-security-policy']);
    expect(policy).toContain("default-src 'none'");
    expect(policy).toContain("script-src 'self';");
    expect(policy).toContain("style-src 'self'");
    expect(policy).not.toContain('unsafe');
    expect(policy).not.toContain('upgrade-insecure-requests');
    expect(headers['x-content-type-options']).toBe('nosniff');
  });
});

describe('the document', () => {
  test('is served as the very text of the file', async () => {
    const answer = await request(app)
      .get('/openapi.yaml')
      .buffer()
      .parse((response, done) => {
        let text = '';
        response.setEncoding('utf8');
        response.on('data', (chunk: string) => {
          text += chunk;
        });
        response.on('end', () => done(null, text));
      })
      .expect(200)
      .expect('Content-Type', /^application\/yaml/);
    expect(answer.body).toBe(readFileSync(join(packageFolder, 'openapi', 'openapi.yaml'), 'utf8'));
  });

  test('is served as JSON that says the same', async () => {
    const answer = await request(app)
      .get('/openapi.json')
      .expect(200)
      .expect('Content-Type', /^application\/json/);
    expect(answer.body).toEqual(parse(readFileSync(join(packageFolder, 'openapi', 'openapi.yaml'), 'utf8')));
  });

  test.each(['/openapi.yaml', '/openapi.json'])(
    'at %s can be read by tools on other hosts, and is sent once',
    async (path) => {
      const first = await request(app).get(path).expect('Access-Control-Allow-Origin', '*').expect('ETag', /^"/);
      await request(app).get(path).set('If-None-Match', String(first.headers.etag)).expect(304);
    },
  );
});

describe('the pages about problems', () => {
  const problems = Object.entries(contract['x-problems']);

  test('list every kind of problem', async () => {
    const { text } = await request(app)
      .get('/problems')
      .expect(200)
      .expect('Content-Type', /^text\/html/);
    for (const [name, { title }] of problems) expect(text).toContain(`<a href="problems/${name}">${title}</a>`);
  });

  test.each(problems)('explain %s with an example', async (name, { title, status }) => {
    const { text } = await request(app)
      .get(`/problems/${name}`)
      .expect(200)
      .expect('Content-Type', /^text\/html/);
    expect(text).toContain(`<h1>${title}</h1>`);
    expect(text).toContain(`Status ${status}`);
    expect(text).toContain(`&#34;type&#34;: &#34;/problems/${name}&#34;`);
    expect(text).toContain('href="../docs"');
  });

  test('show code as code and nothing of the text as HTML', async () => {
    const { text } = await request(app).get('/problems/unauthorized');
    expect(text).toContain('<code>Authorization: Bearer &#60;key&#62;</code>');
    expect(text).not.toContain('<key>');
  });
});

describe('everything else', () => {
  test.each([
    '/problems/no-such-problem',
    '/problems/toString',
    '/problems/',
    '/Docs',
    '/docs/no-such-file',
    '/v1/brandedPhoneNumbers',
  ])('such as %s is left to the API', async (path) => {
    const answer = await request(app).get(path).expect(404);
    expect(answer.body).toEqual({ from: 'the API' });
  });

  test('such as another method is left to the API', async () => {
    await request(app).post('/docs').expect(404, { from: 'the API' });
  });
});
