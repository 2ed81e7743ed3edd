select pipeline, application, generation from spillway.lease where released_at is null;
