SELECT name, max_running FROM pitboss_lanes ORDER BY name
