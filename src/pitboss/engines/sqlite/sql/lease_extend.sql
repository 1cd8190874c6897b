UPDATE pitboss_leases SET until = ?2 WHERE name = ?1
