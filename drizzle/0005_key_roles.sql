-- Which role created a key, and which one revoked it. Keys that exist keep a null: with the default in ADD COLUMN, they would
-- get the role that migrates.
ALTER TABLE "api_keys" ADD COLUMN "created_by" text COLLATE "C", ADD COLUMN "revoked_by" text COLLATE "C";
ALTER TABLE "api_keys" ALTER COLUMN "created_by" SET DEFAULT session_user;
