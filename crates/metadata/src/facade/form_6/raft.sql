PRAGMA application_id=1416647276;
PRAGMA user_version=2;
BEGIN TRANSACTION;
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL) STRICT;
INSERT INTO meta VALUES('identity','{"cluster":"335fa73d7c4408a6a06860c60a1197eb","name":"dev","server":"s1","incarnation":0,"folder":0,"history":0,"address":"unix:/tmp/b_form6/d/s1/peers.sock","created_unix_ms":1795796968933,"joined":null}',1320326144);
INSERT INTO meta VALUES('boot','1515495',2156152498);
INSERT INTO meta VALUES('vote','{"term":1,"node":1,"committed":true}',316732906);
CREATE TABLE log (
            entry INTEGER PRIMARY KEY, term INTEGER NOT NULL, value TEXT NOT NULL, crc INTEGER NOT NULL
        ) STRICT;
INSERT INTO log VALUES(0,0,'{"id":{"term":0,"node":1,"index":0},"payload":{"members":{"voters":[[1]],"addresses":{"1":"unix:/tmp/b_form6/d/s1/peers.sock"}}}}',2071549047);
INSERT INTO log VALUES(1,1,'{"id":{"term":1,"node":1,"index":1},"payload":"blank"}',3786706785);
INSERT INTO log VALUES(2,1,'{"id":{"term":1,"node":1,"index":2},"payload":{"command":{"version":1,"unix_ms":1795796968933,"from":null,"command":{"init_cluster":{"id":"335fa73d7c4408a6a06860c60a1197eb","name":"dev","server":"s1","address":"unix:/tmp/b_form6/d/s1/peers.sock"}}}}}',2387229228);
INSERT INTO log VALUES(3,1,'{"id":{"term":1,"node":1,"index":3},"payload":{"command":{"version":1,"unix_ms":1795796969274,"from":{"server":"s1","incarnation":0,"boot":1515495,"sequence":1,"settled":1,"up_since":1},"command":{"add_drive":{"id":"da8bc817ab8213d9","server":"s1","pool":"default","path":"/tmp/b_form6/d/s1/drive0","capacity":64684032}}}}}',2877679418);
INSERT INTO log VALUES(4,1,'{"id":{"term":1,"node":1,"index":4},"payload":{"command":{"version":1,"unix_ms":1795796969336,"from":{"server":"s1","incarnation":0,"boot":1515495,"sequence":2,"settled":2,"up_since":1},"command":{"add_drive":{"id":"944143258d3b860b","server":"s1","pool":"default","path":"/tmp/b_form6/d/s1/drive1","capacity":64684032}}}}}',1203709212);
INSERT INTO log VALUES(5,1,'{"id":{"term":1,"node":1,"index":5},"payload":{"command":{"version":3,"unix_ms":1795796969406,"from":{"server":"s1","incarnation":0,"boot":1515495,"sequence":3,"settled":3,"up_since":1},"command":{"create_volume":{"name":"v0","size":8388608,"layout":"mirror:2","pool":"default"}}}}}',1674378316);
INSERT INTO log VALUES(6,1,'{"id":{"term":1,"node":1,"index":6},"payload":{"command":{"version":2,"unix_ms":1795796969462,"from":{"server":"s1","incarnation":0,"boot":1515495,"sequence":4,"settled":4,"up_since":1},"command":{"create_snapshot":{"volume":"v0","name":"s"}}}}}',4233509661);
INSERT INTO log VALUES(7,1,'{"id":{"term":1,"node":1,"index":7},"payload":{"command":{"version":3,"unix_ms":1795796969473,"from":{"server":"s1","incarnation":0,"boot":1515495,"sequence":5,"settled":5,"up_since":1},"command":{"clone_volume":{"volume":"v0","snapshot":"s","name":"c"}}}}}',3744426727);
INSERT INTO log VALUES(8,1,'{"id":{"term":1,"node":1,"index":8},"payload":{"command":{"version":3,"unix_ms":1795796969493,"from":{"server":"s1","incarnation":0,"boot":1515495,"sequence":6,"settled":6,"up_since":1},"command":{"create_volume":{"name":"w","size":1048576,"layout":"mirror:2","pool":"default"}}}}}',3874520184);
COMMIT;
