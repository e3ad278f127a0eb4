<?php
// Tests the PHP client that openapi-generator generates from the contract against a running service.
require 'GuzzleHttp/autoload.php';

use OpenAPI\Client\Api\BrandedPhoneNumbersApi;
use OpenAPI\Client\ApiException;
use OpenAPI\Client\Configuration;
use OpenAPI\Client\Model\BusinessProfile;
use OpenAPI\Client\Model\StatusFilter;

spl_autoload_register(function (string $class): void {
    $path = str_replace(['OpenAPI\\Client\\', '\\'], ['', '/'], $class);
    require getenv('CACHE') . "/php/lib/$path.php";
});

function api(string $url): BrandedPhoneNumbersApi
{
    return new BrandedPhoneNumbersApi(null, (new Configuration())->setHost(getenv($url)));
}

/** Returns the numbers of all pages. */
function walk(mixed ...$filters): array
{
    $numbers = [];
    do {
        $page = api('SERVICE_URL')->listBrandedPhoneNumbers(...$filters, size: 50);
        foreach ($page->getItems() as $item) $numbers[] = $item->getPhoneNumber();
        $filters['next_cursor'] = $page->getNextCursor();
    } while ($filters['next_cursor'] !== null);
    return $numbers;
}

function same(mixed $right, mixed $found): void
{
    if ($right !== $found) throw new Exception('not ' . json_encode($right) . ' but ' . json_encode($found));
}

$tests = [
    'reads all pages' => function () {
        same(array_map(fn ($i) => sprintf('+1415555%04d', $i), range(0, 239)), walk());
    },
    'encodes what a URL needs encoded and repeats parameters' => function () {
        same(['+14155550007'], walk(phone_number: '+14155550007'));
        same(56, count(walk(carrier: ['AT&T'], status: [StatusFilter::APPROVED])));
        same(120, count(walk(internal_name: ['Billing & Payments', 'A+B, 100%', 'Été'])));
    },
    'reads and makes names beyond ASCII' => function () {
        $page = api('SERVICE_URL')->listBrandedPhoneNumbers(phone_number: '+14155550001');
        same('Café & Co', $page->getItems()[0]->getBrandingNameShort());
        same('Été', (new BusinessProfile())->setBusinessName('Été')->getBusinessName());
    },
    'reads the fault of a rejected request' => function () {
        try {
            api('SERVICE_URL')->listBrandedPhoneNumbers(internal_name: ["a\u{85}b"]);
        } catch (ApiException $error) {
            same(400, $error->getCode());
            [$fault] = $error->getResponseObject()->getErrors();
            same('internalName', $fault->getParameter());
            same(true, str_contains($fault->getDetail(), 'name without control characters'));
            return;
        }
        throw new Exception('the request was accepted');
    },
    'throws a 304 if the page has not changed' => function () {
        [, , $headers] = api('SERVICE_URL')->listBrandedPhoneNumbersWithHttpInfo(size: 5);
        try {
            api('SERVICE_URL')->listBrandedPhoneNumbers(size: 5, if_none_match: $headers['ETag'][0]);
        } catch (ApiException $error) {
            return same(304, $error->getCode());
        }
        throw new Exception('the page was sent again');
    },
    'is not broken by members and values that are newer than it' => function () {
        [$number] = api('GROWN_URL')->listBrandedPhoneNumbers(phone_number: '+14155550001')->getItems();
        same(['on hold', 'voicemailGreeting'], [$number->getStatus(), $number->getCarrierStatuses()[0]->getFeature()]);
    },
];
$status = 0;
foreach ($tests as $title => $test) {
    try {
        $test();
        echo "ok $title\n";
    } catch (Throwable $error) {
        echo "not ok $title: $error\n";
        $status = 1;
    }
}
exit($status);
