PRAGMA application_id=1416647276;
PRAGMA user_version=2;
BEGIN TRANSACTION;
CREATE TABLE log (
            entry INTEGER PRIMARY KEY, term INTEGER NOT NULL, value TEXT NOT NULL, crc INTEGER NOT NULL
        ) STRICT;
INSERT INTO "log" VALUES(0,0,'{"id":{"term":0,"node":1,"index":0},"payload":{"members":{"voters":[[1]],"addresses":{"1":"unix:/v/s1/peers.sock"}}}}',1039134047);
INSERT INTO "log" VALUES(1,1,'{"id":{"term":1,"node":1,"index":1},"payload":"blank"}',3786706785);
INSERT INTO "log" VALUES(2,1,'{"id":{"term":1,"node":1,"index":2},"payload":{"command":{"version":1,"unix_ms":1795794972555,"from":null,"command":{"init_cluster":{"id":"ac2f8557d3db149a05843c2824a14575","name":"dev","server":"s1","address":"unix:/v/s1/peers.sock"}}}}}',258822634);
INSERT INTO "log" VALUES(3,1,'{"id":{"term":1,"node":1,"index":3},"payload":{"command":{"version":1,"unix_ms":1795794972790,"from":{"server":"s1","incarnation":0,"boot":1170831,"sequence":1,"settled":1},"command":{"add_drive":{"id":"5db3aeff53dd1012","server":"s1","pool":"default","path":"/v/s1/drive0","capacity":64684032}}}}}',3199336943);
INSERT INTO "log" VALUES(4,1,'{"id":{"term":1,"node":1,"index":4},"payload":{"command":{"version":1,"unix_ms":1795794972834,"from":{"server":"s1","incarnation":0,"boot":1170831,"sequence":2,"settled":2},"command":{"add_drive":{"id":"10ca4ea5e4ed8191","server":"s1","pool":"default","path":"/v/s1/drive1","capacity":64684032}}}}}',2938360709);
INSERT INTO "log" VALUES(5,1,'{"id":{"term":1,"node":1,"index":5},"payload":{"command":{"version":3,"unix_ms":1795794984835,"from":{"server":"s1","incarnation":0,"boot":1170831,"sequence":3,"settled":3},"command":{"create_volume":{"name":"v0","size":8388608,"layout":"mirror:2","pool":"default"}}}}}',3871687577);
INSERT INTO "log" VALUES(6,1,'{"id":{"term":1,"node":1,"index":6},"payload":{"command":{"version":1,"unix_ms":1795794985839,"from":{"server":"s1","incarnation":0,"boot":1170831,"sequence":4,"settled":4},"command":{"set_drive_state":{"id":"10ca4ea5e4ed8191","to":"missing","reason":"there is nothing at its path","expected_view":3}}}}}',3675912523);
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL) STRICT;
INSERT INTO "meta" VALUES('identity','{"cluster":"ac2f8557d3db149a05843c2824a14575","name":"dev","server":"s1","incarnation":0,"folder":0,"history":0,"address":"unix:/v/s1/peers.sock","created_unix_ms":1795794972555,"joined":null}',730672789);
INSERT INTO "meta" VALUES('boot','1170831',3744822768);
INSERT INTO "meta" VALUES('vote','{"term":1,"node":1,"committed":true}',316732906);
COMMIT;
