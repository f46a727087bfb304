PRAGMA application_id=1416647276;
PRAGMA user_version=2;
BEGIN TRANSACTION;
CREATE TABLE log (
            entry INTEGER PRIMARY KEY, term INTEGER NOT NULL, value TEXT NOT NULL, crc INTEGER NOT NULL
        ) STRICT;
INSERT INTO "log" VALUES(0,0,'{"id":{"term":0,"node":1,"index":0},"payload":{"members":{"voters":[[1]],"addresses":{"1":"127.0.0.1:7000"}}}}',2669621882);
INSERT INTO "log" VALUES(1,1,'{"id":{"term":1,"node":1,"index":1},"payload":"blank"}',3786706785);
INSERT INTO "log" VALUES(2,1,'{"id":{"term":1,"node":1,"index":2},"payload":{"command":{"version":1,"unix_ms":1795916713392,"from":null,"command":{"init_cluster":{"id":"fd065aa4df583039bf3acb3648cf49de","name":"test","server":"s1","address":"127.0.0.1:7000"}}}}}',3153217648);
INSERT INTO "log" VALUES(3,1,'{"id":{"term":1,"node":1,"index":3},"payload":{"command":{"version":1,"unix_ms":1795916713894,"from":{"server":"s1","incarnation":0,"boot":1879759,"sequence":1,"settled":1,"up_since":1},"command":{"add_drive":{"id":"b493b0a0f02d4aa6","server":"s1","pool":"default","path":"/tmp/fx/d1","capacity":64684032}}}}}',1266964950);
INSERT INTO "log" VALUES(4,1,'{"id":{"term":1,"node":1,"index":4},"payload":{"command":{"version":1,"unix_ms":1795916713948,"from":{"server":"s1","incarnation":0,"boot":1879759,"sequence":2,"settled":2,"up_since":1},"command":{"add_drive":{"id":"c612157b993ddb4e","server":"s1","pool":"default","path":"/tmp/fx/d2","capacity":64684032}}}}}',2415519604);
INSERT INTO "log" VALUES(5,1,'{"id":{"term":1,"node":1,"index":5},"payload":{"command":{"version":3,"unix_ms":1795916714088,"from":{"server":"s1","incarnation":0,"boot":1879759,"sequence":3,"settled":3,"up_since":1},"command":{"create_volume":{"name":"v0","size":8388608,"layout":"stripe","pool":"default"}}}}}',249648565);
INSERT INTO "log" VALUES(6,1,'{"id":{"term":1,"node":1,"index":6},"payload":{"command":{"version":3,"unix_ms":1795916714124,"from":{"server":"s1","incarnation":0,"boot":1879759,"sequence":4,"settled":4,"up_since":1},"command":{"create_volume":{"name":"w","size":8388608,"layout":"stripe","pool":"default"}}}}}',2580888388);
INSERT INTO "log" VALUES(7,1,'{"id":{"term":1,"node":1,"index":7},"payload":{"command":{"version":8,"unix_ms":1795916714150,"from":{"server":"s1","incarnation":0,"boot":1879759,"sequence":5,"settled":5,"up_since":1},"command":{"create_snapshot":{"volume":"id:1","name":"s"}}}}}',2464885365);
INSERT INTO "log" VALUES(8,1,'{"id":{"term":1,"node":1,"index":8},"payload":{"command":{"version":8,"unix_ms":1795916714170,"from":{"server":"s1","incarnation":0,"boot":1879759,"sequence":6,"settled":6,"up_since":1},"command":{"clone_volume":{"volume":"id:1","snapshot":"id:1","name":"c"}}}}}',614689966);
INSERT INTO "log" VALUES(9,1,'{"id":{"term":1,"node":1,"index":9},"payload":{"command":{"version":12,"unix_ms":1795916714945,"from":{"server":"s1","incarnation":0,"boot":1879759,"sequence":7,"settled":7,"up_since":1},"command":{"name_drive":{"id":"b493b0a0f02d4aa6","name":"left"}}}}}',1009995198);
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL) STRICT;
INSERT INTO "meta" VALUES('identity','{"cluster":"fd065aa4df583039bf3acb3648cf49de","name":"test","server":"s1","incarnation":0,"folder":0,"history":0,"address":"127.0.0.1:7000","created_unix_ms":1795916713392,"joined":null}',830023874);
INSERT INTO "meta" VALUES('boot','1879759',3568671993);
INSERT INTO "meta" VALUES('vote','{"term":1,"node":1,"committed":true}',316732906);
COMMIT;
