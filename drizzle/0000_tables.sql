CREATE TYPE "public"."detailed_status" AS ENUM('pending.initialOptIn', 'pending.optIn', 'submitted.optIn', 'approved.optIn', 'rejected.optIn', 'submitted.optOut', 'pending.optOut', 'approved.optOut', 'rejected.optOut');--> statement-breakpoint
CREATE TYPE "public"."feature" AS ENUM('brandedCallerId', 'spamRemediation');--> statement-breakpoint
CREATE TYPE "public"."status" AS ENUM('submitted for review', 'rejected', 'approved', 'unregistered');--> statement-breakpoint
CREATE TABLE "api_keys" (
	"id" uuid PRIMARY KEY DEFAULT gen_random_uuid() NOT NULL,
	"hash" text COLLATE "C" NOT NULL,
	"name" text COLLATE "C" NOT NULL,
	"business_profile_ids" uuid[],
	"created_at" timestamp(3) with time zone DEFAULT now() NOT NULL,
	"expires_at" timestamp(3) with time zone,
	"revoked_at" timestamp(3) with time zone,
	"last_used_on" date,
	CONSTRAINT "api_keys_hash_unique" UNIQUE("hash"),
	CONSTRAINT "key_name_is_name" CHECK (char_length(name) BETWEEN 1 AND 255 AND name !~ '[\x01-\x1f\x7f-\x9f]'),
	CONSTRAINT "key_expires_later" CHECK (expires_at > created_at),
	CONSTRAINT "key_times_are_times" CHECK (created_at BETWEEN '0001-01-01T00:00:00Z'::timestamptz AND '9999-12-31T23:59:59.999Z'::timestamptz AND expires_at BETWEEN '0001-01-01T00:00:00Z'::timestamptz AND '9999-12-31T23:59:59.999Z'::timestamptz AND revoked_at BETWEEN '0001-01-01T00:00:00Z'::timestamptz AND '9999-12-31T23:59:59.999Z'::timestamptz)
);
--> statement-breakpoint
CREATE TABLE "branded_phone_numbers" (
	"phone_number" text COLLATE "C" PRIMARY KEY NOT NULL,
	"id" uuid DEFAULT gen_random_uuid() NOT NULL,
	"business_profile_id" uuid NOT NULL,
	"internal_name" text COLLATE "C",
	"branding_name_short" text COLLATE "C",
	"branding_name_long" text COLLATE "C",
	"reporting_group" text COLLATE "C",
	"created_at" timestamp(3) with time zone DEFAULT now() NOT NULL,
	"updated_at" timestamp(3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "branded_phone_numbers_id" UNIQUE("id"),
	CONSTRAINT "phone_number_is_e164" CHECK (phone_number ~ '^\+[1-9][0-9]{1,14}$'),
	CONSTRAINT "internal_name_is_name" CHECK (char_length(internal_name) BETWEEN 1 AND 255 AND internal_name !~ '[\x01-\x1f\x7f-\x9f]'),
	CONSTRAINT "branding_name_short_is_name" CHECK (char_length(branding_name_short) BETWEEN 1 AND 15 AND branding_name_short !~ '[\x01-\x1f\x7f-\x9f]'),
	CONSTRAINT "branding_name_long_is_name" CHECK (char_length(branding_name_long) BETWEEN 1 AND 32 AND branding_name_long !~ '[\x01-\x1f\x7f-\x9f]'),
	CONSTRAINT "reporting_group_is_name" CHECK (char_length(reporting_group) BETWEEN 1 AND 255 AND reporting_group !~ '[\x01-\x1f\x7f-\x9f]'),
	CONSTRAINT "times_are_times" CHECK (created_at BETWEEN '0001-01-01T00:00:00Z'::timestamptz AND '9999-12-31T23:59:59.999Z'::timestamptz AND updated_at BETWEEN '0001-01-01T00:00:00Z'::timestamptz AND '9999-12-31T23:59:59.999Z'::timestamptz)
);
--> statement-breakpoint
CREATE TABLE "business_profiles" (
	"id" uuid PRIMARY KEY NOT NULL,
	"business_name" text COLLATE "C" NOT NULL,
	"status" text COLLATE "C" NOT NULL,
	"item" text COLLATE "C" GENERATED ALWAYS AS ('{"id":"' || id::text || '","businessName":"' || replace(replace(business_name, '\', '\\'), '"', '\"') || '","status":"' || replace(replace(status, '\', '\\'), '"', '\"') || '"}') STORED NOT NULL,
	CONSTRAINT "business_name_is_name" CHECK (char_length(business_name) BETWEEN 1 AND 255 AND business_name !~ '[\x01-\x1f\x7f-\x9f]'),
	CONSTRAINT "status_is_name" CHECK (char_length(status) BETWEEN 1 AND 255 AND status !~ '[\x01-\x1f\x7f-\x9f]')
);
--> statement-breakpoint
CREATE TABLE "carrier_statuses" (
	"phone_number" text COLLATE "C" NOT NULL,
	"carrier" text COLLATE "C" NOT NULL,
	"feature" "feature" NOT NULL,
	"detailed_status" "detailed_status" NOT NULL,
	"created_at" timestamp(3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "carrier_statuses_pkey" PRIMARY KEY("phone_number","carrier","feature"),
	CONSTRAINT "carrier_is_name" CHECK (char_length(carrier) BETWEEN 1 AND 255 AND carrier !~ '[\x01-\x1f\x7f-\x9f]'),
	CONSTRAINT "time_is_time" CHECK (created_at BETWEEN '0001-01-01T00:00:00Z'::timestamptz AND '9999-12-31T23:59:59.999Z'::timestamptz)
);
--> statement-breakpoint
CREATE TABLE "items" (
	"phone_number" text COLLATE "C" PRIMARY KEY NOT NULL,
	"id" uuid NOT NULL,
	"business_profile_id" uuid NOT NULL,
	"internal_name" text COLLATE "C",
	"reporting_group" text COLLATE "C",
	"status" "status" NOT NULL,
	"term_ids" bigint[] NOT NULL,
	"item_tail" text COLLATE "C" NOT NULL,
	"updated_at" timestamp(3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "postings" (
	"term_id" bigint NOT NULL,
	"phone_number" text COLLATE "C" NOT NULL,
	"business_profile_id" uuid NOT NULL,
	"reporting_group" text COLLATE "C",
	"internal_name" text COLLATE "C",
	CONSTRAINT "postings_pkey" PRIMARY KEY("term_id","phone_number")
);
--> statement-breakpoint
CREATE TABLE "terms" (
	"id" bigint PRIMARY KEY NOT NULL,
	"carrier" text COLLATE "C" NOT NULL,
	"feature" "feature",
	"detailed_status" "detailed_status",
	"status" "status" NOT NULL
);
--> statement-breakpoint
ALTER TABLE "branded_phone_numbers" ADD CONSTRAINT "number_has_business_profile" FOREIGN KEY ("business_profile_id") REFERENCES "public"."business_profiles"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "carrier_statuses" ADD CONSTRAINT "carrier_status_has_number" FOREIGN KEY ("phone_number") REFERENCES "public"."branded_phone_numbers"("phone_number") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "items_by_business_profile" ON "items" USING btree ("business_profile_id","phone_number","reporting_group","internal_name");--> statement-breakpoint
CREATE INDEX "items_by_reporting_group" ON "items" USING btree ("reporting_group","phone_number","business_profile_id","internal_name");--> statement-breakpoint
CREATE INDEX "items_by_internal_name" ON "items" USING btree ("internal_name","phone_number","business_profile_id","reporting_group");--> statement-breakpoint
CREATE INDEX "postings_by_business_profile" ON "postings" USING btree ("business_profile_id","term_id","phone_number");--> statement-breakpoint
CREATE INDEX "postings_by_reporting_group" ON "postings" USING btree ("reporting_group","term_id","phone_number");--> statement-breakpoint
CREATE INDEX "postings_by_internal_name" ON "postings" USING btree ("internal_name","term_id","phone_number");--> statement-breakpoint
CREATE INDEX "terms_by_carrier" ON "terms" USING btree ("carrier","feature","detailed_status","status");