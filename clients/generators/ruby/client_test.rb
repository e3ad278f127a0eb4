# Tests the Ruby client that openapi-generator generates from the contract against a running service.
require "minitest/autorun"
require "uri"
require "openapi_client"

class ClientTest < Minitest::Test
  def api(url)
    address = URI(ENV.fetch(url))
    configuration = OpenapiClient::Configuration.new do |made|
      made.scheme = address.scheme
      made.host = "#{address.host}:#{address.port}"
      # By default, the client sends carrier[0]=…
      made.params_encoding = :multi
    end
    OpenapiClient::BrandedPhoneNumbersApi.new(OpenapiClient::ApiClient.new(configuration))
  end

  # Returns the numbers of all pages.
  def walk(**filters)
    numbers = []
    loop do
      page = api("SERVICE_URL").list_branded_phone_numbers(size: 50, **filters)
      numbers += page.items.map(&:phone_number)
      filters[:next_cursor] = page.next_cursor
      return numbers if page.next_cursor.nil?
    end
  end

  def test_reads_all_pages
    assert_equal((0...240).map { |i| format("+1415555%04d", i) }, walk)
  end

  def test_encodes_and_repeats_parameters
    assert_equal ["+14155550007"], walk(phone_number: "+14155550007")
    assert_equal 56, walk(carrier: ["AT&T"], status: ["approved"]).length
    assert_equal 120, walk(internal_name: ["Billing & Payments", "A+B, 100%", "Été"]).length
  end

  def test_reads_and_makes_names_beyond_ascii
    page = api("SERVICE_URL").list_branded_phone_numbers(phone_number: "+14155550001")
    assert_equal "Café & Co", page.items.first.branding_name_short
    profile = { id: "6513270e-269e-4d37-b2a7-4de452e6b438", business_name: "Été", status: "approved" }
    assert_equal "Été", OpenapiClient::BusinessProfile.new(profile).business_name
  end

  def test_reads_the_fault_of_a_rejected_request
    error = assert_raises(OpenapiClient::ApiError) do
      api("SERVICE_URL").list_branded_phone_numbers(internal_name: ["a\u0085b"])
    end
    assert_equal 400, error.code
    fault = JSON.parse(error.response_body)["errors"].first
    assert_equal "internalName", fault["parameter"]
    assert_includes fault["detail"], "name without control characters"
  end

  def test_raises_a_304_if_the_page_has_not_changed
    _, _, headers = api("SERVICE_URL").list_branded_phone_numbers_with_http_info(size: 5)
    error = assert_raises(OpenapiClient::ApiError) do
      api("SERVICE_URL").list_branded_phone_numbers(size: 5, if_none_match: headers["ETag"])
    end
    assert_equal 304, error.code
  end

  def test_accepts_new_members_and_values
    page = api("GROWN_URL").list_branded_phone_numbers(phone_number: "+14155550001")
    assert_equal "on hold", page.items.first.status
    assert_equal "voicemailGreeting", page.items.first.carrier_statuses.first.feature
  end
end
