PRAGMA application_id=1416647276;
PRAGMA user_version=2;
BEGIN TRANSACTION;
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL) STRICT;
INSERT INTO meta VALUES('identity','{"cluster":"0000000000000000000000000000abcd","name":"test","server":"s1","incarnation":0,"folder":0,"history":0,"address":"127.0.0.1:7000","created_unix_ms":1000,"joined":null}',4039399589);
INSERT INTO meta VALUES('boot','1915422',793667088);
INSERT INTO meta VALUES('vote','{"term":1,"node":1,"committed":true}',316732906);
CREATE TABLE log (
            entry INTEGER PRIMARY KEY, term INTEGER NOT NULL, value TEXT NOT NULL, crc INTEGER NOT NULL
        ) STRICT;
INSERT INTO log VALUES(0,0,'{"id":{"term":0,"node":1,"index":0},"payload":{"members":{"voters":[[1]],"addresses":{"1":"127.0.0.1:7000"}}}}',2669621882);
INSERT INTO log VALUES(1,1,'{"id":{"term":1,"node":1,"index":1},"payload":"blank"}',3786706785);
INSERT INTO log VALUES(2,1,'{"id":{"term":1,"node":1,"index":2},"payload":{"command":{"version":1,"unix_ms":1000,"from":null,"command":{"init_cluster":{"id":"0000000000000000000000000000abcd","name":"test","server":"s1","address":"127.0.0.1:7000"}}}}}',2443822755);
INSERT INTO log VALUES(3,1,'{"id":{"term":1,"node":1,"index":3},"payload":{"command":{"version":1,"unix_ms":1795822755771,"from":{"server":"s1","incarnation":0,"boot":1915422,"sequence":1,"settled":1,"up_since":1},"command":{"add_drive":{"id":"0000000000000001","server":"s1","pool":"default","path":"/d1","capacity":1073741824}}}}}',3226064633);
INSERT INTO log VALUES(4,1,'{"id":{"term":1,"node":1,"index":4},"payload":{"command":{"version":1,"unix_ms":1795822755776,"from":{"server":"s1","incarnation":0,"boot":1915422,"sequence":2,"settled":2,"up_since":1},"command":{"add_drive":{"id":"0000000000000002","server":"s1","pool":"default","path":"/d2","capacity":1073741824}}}}}',3172583339);
INSERT INTO log VALUES(5,1,'{"id":{"term":1,"node":1,"index":5},"payload":{"command":{"version":3,"unix_ms":1795822755779,"from":{"server":"s1","incarnation":0,"boot":1915422,"sequence":3,"settled":3,"up_since":1},"command":{"create_volume":{"name":"v0","size":1073741824,"layout":"stripe","pool":"default"}}}}}',809343680);
INSERT INTO log VALUES(6,1,'{"id":{"term":1,"node":1,"index":6},"payload":{"command":{"version":3,"unix_ms":1795822755792,"from":{"server":"s1","incarnation":0,"boot":1915422,"sequence":4,"settled":4,"up_since":1},"command":{"create_volume":{"name":"w","size":1073741824,"layout":"stripe","pool":"default"}}}}}',269689260);
INSERT INTO log VALUES(7,1,'{"id":{"term":1,"node":1,"index":7},"payload":{"command":{"version":8,"unix_ms":1795822755814,"from":{"server":"s1","incarnation":0,"boot":1915422,"sequence":5,"settled":5,"up_since":1},"command":{"create_snapshot":{"volume":"v0","name":"s"}}}}}',1258660427);
INSERT INTO log VALUES(8,1,'{"id":{"term":1,"node":1,"index":8},"payload":{"command":{"version":8,"unix_ms":1795822755817,"from":{"server":"s1","incarnation":0,"boot":1915422,"sequence":6,"settled":6,"up_since":1},"command":{"roll_back":{"volume":"v0","name":"s"}}}}}',2411604025);
INSERT INTO log VALUES(9,1,'{"id":{"term":1,"node":1,"index":9},"payload":{"command":{"version":8,"unix_ms":1795822755822,"from":{"server":"s1","incarnation":0,"boot":1915422,"sequence":7,"settled":7,"up_since":1},"command":{"clone_volume":{"volume":"v0","snapshot":"s","name":"c"}}}}}',3828544158);
INSERT INTO log VALUES(10,1,'{"id":{"term":1,"node":1,"index":10},"payload":{"command":{"version":7,"unix_ms":1795822755823,"from":{"server":"s1","incarnation":0,"boot":1915422,"sequence":8,"settled":8,"up_since":1},"command":{"note_import":{"name":"w","import":7,"done":512}}}}}',677885398);
INSERT INTO log VALUES(11,1,'{"id":{"term":1,"node":1,"index":11},"payload":{"command":{"version":7,"unix_ms":1795822755824,"from":{"server":"s1","incarnation":0,"boot":1915422,"sequence":9,"settled":9,"up_since":1},"command":{"set_drive_state":{"id":"0000000000000002","to":"missing","reason":"unplugged","expected_view":null}}}}}',2448819625);
INSERT INTO log VALUES(12,1,'{"id":{"term":1,"node":1,"index":12},"payload":{"command":{"version":7,"unix_ms":1795822755831,"from":{"server":"s1","incarnation":0,"boot":1915422,"sequence":10,"settled":10,"up_since":1},"command":{"set_drive_state":{"id":"0000000000000002","to":"behind","reason":"","expected_view":null}}}}}',1998390099);
COMMIT;
