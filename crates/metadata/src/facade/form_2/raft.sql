PRAGMA application_id=1416647276;
PRAGMA user_version=2;
BEGIN TRANSACTION;
CREATE TABLE log (
            entry INTEGER PRIMARY KEY, term INTEGER NOT NULL, value TEXT NOT NULL, crc INTEGER NOT NULL
        ) STRICT;
INSERT INTO "log" VALUES(0,0,'{"id":{"term":0,"node":1,"index":0},"payload":{"members":{"voters":[[1]],"addresses":{"1":"unix:/tmp/f2/d/s1/peers.sock"}}}}',2872404257);
INSERT INTO "log" VALUES(1,1,'{"id":{"term":1,"node":1,"index":1},"payload":"blank"}',3786706785);
INSERT INTO "log" VALUES(2,1,'{"id":{"term":1,"node":1,"index":2},"payload":{"command":{"version":1,"unix_ms":1795348757793,"from":null,"command":{"init_cluster":{"id":"a2c476aa2c680124d49612939b6f894b","name":"dev","server":"s1","address":"unix:/tmp/f2/d/s1/peers.sock"}}}}}',175079572);
INSERT INTO "log" VALUES(3,1,'{"id":{"term":1,"node":1,"index":3},"payload":{"command":{"version":1,"unix_ms":1795348758254,"from":{"server":"s1","incarnation":0,"boot":1496487,"sequence":1,"settled":1},"command":{"add_drive":{"id":"c0f8cabbfd2413f1","server":"s1","pool":"default","path":"/tmp/f2/d/s1/drive0","capacity":65142784}}}}}',2081287488);
INSERT INTO "log" VALUES(4,1,'{"id":{"term":1,"node":1,"index":4},"payload":{"command":{"version":1,"unix_ms":1795348758327,"from":{"server":"s1","incarnation":0,"boot":1496487,"sequence":2,"settled":2},"command":{"add_drive":{"id":"45a57783b32e636f","server":"s1","pool":"default","path":"/tmp/f2/d/s1/drive1","capacity":65142784}}}}}',1337466991);
INSERT INTO "log" VALUES(5,1,'{"id":{"term":1,"node":1,"index":5},"payload":{"command":{"version":1,"unix_ms":1795348758363,"from":{"server":"s1","incarnation":0,"boot":1496487,"sequence":3,"settled":3},"command":{"create_volume":{"name":"v0","size":8388608,"layout":"mirror:2","pool":"default"}}}}}',881407448);
INSERT INTO "log" VALUES(6,1,'{"id":{"term":1,"node":1,"index":6},"payload":{"command":{"version":1,"unix_ms":1795348758384,"from":{"server":"s1","incarnation":0,"boot":1496487,"sequence":4,"settled":4},"command":{"create_volume":{"name":"gone","size":4194304,"layout":"stripe","pool":"default"}}}}}',3654990967);
INSERT INTO "log" VALUES(7,1,'{"id":{"term":1,"node":1,"index":7},"payload":{"command":{"version":1,"unix_ms":1795348758435,"from":{"server":"s1","incarnation":0,"boot":1496487,"sequence":5,"settled":5},"command":{"remove_volume":{"name":"gone"}}}}}',466127309);
INSERT INTO "log" VALUES(8,1,'{"id":{"term":1,"node":1,"index":8},"payload":{"command":{"version":1,"unix_ms":1795348758475,"from":{"server":"s1","incarnation":0,"boot":1496487,"sequence":6,"settled":6},"command":{"finish_remove_volume":{"id":2}}}}}',293763717);
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL) STRICT;
INSERT INTO "meta" VALUES('identity','{"cluster":"a2c476aa2c680124d49612939b6f894b","name":"dev","server":"s1","incarnation":0,"folder":0,"address":"unix:/tmp/f2/d/s1/peers.sock","created_unix_ms":1795348757793,"joined":null}',2685957362);
INSERT INTO "meta" VALUES('boot','1496487',979912579);
INSERT INTO "meta" VALUES('vote','{"term":1,"node":1,"committed":true}',316732906);
COMMIT;
