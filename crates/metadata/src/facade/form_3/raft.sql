PRAGMA application_id=1416647276;
PRAGMA user_version=2;
BEGIN TRANSACTION;
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL) STRICT;
INSERT INTO meta VALUES('identity','{"cluster":"7a6371d4cedf964fffdbe90f7779f056","name":"dev","server":"s1","incarnation":0,"folder":0,"address":"unix:/tmp/f3/d/s1/peers.sock","created_unix_ms":1795385804941,"joined":null}',955445795);
INSERT INTO meta VALUES('boot','1094843',2238840017);
INSERT INTO meta VALUES('vote','{"term":1,"node":1,"committed":true}',316732906);
CREATE TABLE log (
            entry INTEGER PRIMARY KEY, term INTEGER NOT NULL, value TEXT NOT NULL, crc INTEGER NOT NULL
        ) STRICT;
INSERT INTO log VALUES(0,0,'{"id":{"term":0,"node":1,"index":0},"payload":{"members":{"voters":[[1]],"addresses":{"1":"unix:/tmp/f3/d/s1/peers.sock"}}}}',4146104213);
INSERT INTO log VALUES(1,1,'{"id":{"term":1,"node":1,"index":1},"payload":"blank"}',3786706785);
INSERT INTO log VALUES(2,1,'{"id":{"term":1,"node":1,"index":2},"payload":{"command":{"version":1,"unix_ms":1795385804941,"from":null,"command":{"init_cluster":{"id":"7a6371d4cedf964fffdbe90f7779f056","name":"dev","server":"s1","address":"unix:/tmp/f3/d/s1/peers.sock"}}}}}',3535141634);
INSERT INTO log VALUES(3,1,'{"id":{"term":1,"node":1,"index":3},"payload":{"command":{"version":1,"unix_ms":1795385805146,"from":{"server":"s1","incarnation":0,"boot":1094843,"sequence":1,"settled":1},"command":{"add_drive":{"id":"90d128c1a5bf3cc3","server":"s1","pool":"default","path":"/tmp/f3/d/s1/drive0","capacity":65142784}}}}}',1631649972);
INSERT INTO log VALUES(4,1,'{"id":{"term":1,"node":1,"index":4},"payload":{"command":{"version":1,"unix_ms":1795385805182,"from":{"server":"s1","incarnation":0,"boot":1094843,"sequence":2,"settled":2},"command":{"add_drive":{"id":"85a375a2ef987b05","server":"s1","pool":"default","path":"/tmp/f3/d/s1/drive1","capacity":65142784}}}}}',3544880299);
INSERT INTO log VALUES(5,1,'{"id":{"term":1,"node":1,"index":5},"payload":{"command":{"version":1,"unix_ms":1795385805199,"from":{"server":"s1","incarnation":0,"boot":1094843,"sequence":3,"settled":3},"command":{"create_volume":{"name":"v0","size":8388608,"layout":"mirror:2","pool":"default"}}}}}',405296047);
INSERT INTO log VALUES(6,1,'{"id":{"term":1,"node":1,"index":6},"payload":{"command":{"version":1,"unix_ms":1795385805225,"from":{"server":"s1","incarnation":0,"boot":1094843,"sequence":4,"settled":4},"command":{"create_volume":{"name":"gone","size":4194304,"layout":null,"pool":"default"}}}}}',3216914555);
INSERT INTO log VALUES(7,1,'{"id":{"term":1,"node":1,"index":7},"payload":{"command":{"version":1,"unix_ms":1795385805241,"from":{"server":"s1","incarnation":0,"boot":1094843,"sequence":5,"settled":5},"command":{"remove_volume":{"name":"gone"}}}}}',4092220156);
INSERT INTO log VALUES(8,1,'{"id":{"term":1,"node":1,"index":8},"payload":{"command":{"version":1,"unix_ms":1795385805251,"from":{"server":"s1","incarnation":0,"boot":1094843,"sequence":6,"settled":6},"command":{"finish_remove_volume":{"id":2}}}}}',865411951);
COMMIT;
